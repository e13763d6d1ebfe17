"""What can be wrong with a server or a key, found out before the first item is added."""


class FilterError(Exception):
    """A filter cannot be used as it was asked for."""


class ModuleMissingError(FilterError):
    """The server has no Bloom filters."""

    def __init__(self) -> None:
        super().__init__(
            "the Redis or Valkey server has no BF.* commands: it runs without the oxbloom module. Start it with "
            "--loadmodule /path/to/liboxbloom.so, or add that line to its configuration"
        )


class KeyTakenError(FilterError):
    """The key holds something else."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the key {key!r} holds no Bloom filter, but something else: a set of scrapy-redis, perhaps, or the bitmap of another "
            "filter. Delete it, or choose another key"
        )


class FilterMismatchError(FilterError):
    """The key holds a filter that was made otherwise."""

    def __init__(self, key: str, there: object, wanted: object) -> None:
        super().__init__(
            f"the key {key!r} holds a filter with {there}, but {wanted} was asked for. Ask for what is there, delete the key, or "
            "choose another one"
        )
