"""Checks that a client can be used."""

LIBRARIES = ("redis.", "valkey.")
PIPELINES = {"Pipeline", "ClusterPipeline"}
"""The names of these classes in redis-py and valkey-py, in which they are subclasses of clients."""


def require_client(
    client: object, user: str, *, asynchronous: bool = False, instead: str = ""
) -> None:
    """Raises TypeError if `user` cannot use a client, and says what to use `instead` of `user`."""
    if client is None:  # nothing will be sent
        return
    classes = type(client).__mro__
    given = f"{classes[0].__module__}.{classes[0].__qualname__}"
    wanted = "redis.asyncio.Redis" if asynchronous else "redis.Redis"
    needs = f"{user} needs a client of redis-py or valkey-py, such as {wanted}, not {given}"
    if not hasattr(client, "execute_command"):
        raise TypeError(needs)
    if any(each.__name__ in PIPELINES for each in classes):
        raise TypeError(
            f"{needs}: it would send its commands at once, outside of the pipeline. Pass the client of the pipeline"
        )
    modules = [each.__module__ for each in classes if each.__module__.startswith(LIBRARIES)]
    # Other classes may behave like those of the libraries.
    if modules and any(".asyncio" in module for module in modules) != asynchronous:
        raise TypeError(f"{needs}{instead and f': use {instead} for that'}")
