"""The exceptions for servers and keys that cannot be used for a filter."""


class FilterError(Exception):
    """The base class of these exceptions."""


class ModuleMissingError(FilterError):
    """Raised if the server does not have the module."""

    def __init__(self, prefix: str = "", server: str = "the Redis or Valkey server") -> None:
        argument = f" prefix {prefix}" if prefix else ""
        super().__init__(
            f"{server} has no {prefix}BF.* commands: it runs without the oxbloom module, or the module has another "
            f"prefix. Start it with --loadmodule /path/to/liboxbloom.so{argument}, or add that line to its "
            "configuration"
        )


class KeyTakenError(FilterError):
    """Raised if the key holds something other than a Bloom filter."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the key {key!r} holds no Bloom filter, but something else, perhaps a set of scrapy-redis or the bitmap "
            "of another filter. Delete it, or choose another key"
        )


class FilterMismatchError(FilterError):
    """Raised if the key holds a filter that was created with another error rate, kind or window."""

    def __init__(self, key: str, there: object, wanted: object) -> None:
        super().__init__(
            f"the key {key!r} holds a filter with {there}, but {wanted} was asked for. Use the same options, delete "
            "the key, or choose another one"
        )
