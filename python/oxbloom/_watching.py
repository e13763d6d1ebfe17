"""Notices writes to a key while it is read in many steps: a header can come back to what it was."""

import time
from types import TracebackType
from typing import Any, Self

PAUSES = (0.0, 0.1, 0.4, 1.6)  # seconds between attempts to watch a key whose slot moves


class Watch:
    """Watches a key of a server or a cluster from its creation on, on a connection of its own.

    It uses WATCH, MULTI, EXEC and CLIENT ID. A connection that is lost counts as a write: the client may open it again
    without an error, but then its ID is another.
    """

    def __init__(self, client: Any, key: bytes) -> None:
        for pause in (*PAUSES, None):
            try:
                self._watch(client, key)
                return
            except Exception as error:  # the client's library has its own class of errors
                is_elsewhere = type(error).__name__ in ("MovedError", "AskError")
                if pause is None or not is_elsewhere:
                    raise
            # The client follows the redirection of an ordinary command, and so learns where the key is.
            client.execute_command("EXISTS", key)
            time.sleep(pause)

    def _watch(self, client: Any, key: bytes) -> None:
        if hasattr(client, "get_node_from_key"):  # a cluster
            node = client.get_node_from_key(key)
            # valkey-py has another name for it than redis-py.
            name = "get_redis_connection"
            client = getattr(client, name, None) or getattr(client, name.replace("redis", "valkey"))
            client = client(node)
        self._pipeline = client.pipeline()
        try:
            self._pipeline.watch(key)
            self._connection = self._pipeline.client_id()
        except BaseException:
            self._pipeline.reset()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pipeline.reset()

    def ends_unchanged(self) -> bool:
        """Ends the watch, and tells whether nothing wrote to the key."""
        self._pipeline.multi()
        self._pipeline.client_id()
        try:
            return bool(self._pipeline.execute() == [self._connection])
        except Exception as error:  # the client's library has its own class of errors
            if type(error).__name__ == "WatchError":
                return False
            raise
