"""A proxy that can hold back what a client sends to a server, so that a test can interrupt the client there.

It can also lose replies.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from servers import HOST, Server, wait_until


def shut_down(*sockets: socket.socket) -> None:
    for end in sockets:
        with suppress(OSError):  # already closed
            end.shutdown(socket.SHUT_RDWR)


class Gate:
    """A proxy that forwards what clients send. Data that exceeds `limit` bytes or contains `word` waits until the gate
    is opened again."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.passed, self.limit, self.word = 0, 0.0, b""
        self.waiting = False
        self.loses, self.lost = False, 0
        self.changed = threading.Condition()
        self.sockets: list[socket.socket] = []
        self.threads: list[threading.Thread] = []
        self.listener = socket.create_server((HOST, 0))
        self.port: int = self.listener.getsockname()[1]
        self.url = f"redis://{HOST}:{self.port}"
        self.run(self.accept)

    def run(self, target: Callable, *arguments: object) -> None:
        self.threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self.threads[-1].start()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection((HOST, self.server.port))
            except OSError:
                client.close()
                continue
            self.sockets += [client, upstream]
            self.run(self.forward, client, upstream, True)
            self.run(self.forward, upstream, client, False)

    def forward(self, inward: socket.socket, outward: socket.socket, limited: bool) -> None:
        try:
            while data := inward.recv(64 * 1024):
                if limited:
                    with self.changed:
                        self.passed += len(data)
                        self.changed.wait_for(lambda: not self.holds(data))
                elif self.loses:
                    self.loses = False
                    self.lost += 1
                    break
                outward.sendall(data)
        except OSError:
            pass
        shut_down(inward, outward)
        inward.close()

    def holds(self, data: bytes) -> bool:
        self.waiting = self.passed > self.limit or bool(self.word and self.word in data)
        return self.waiting

    def open(self, limit: float = float("inf"), word: bytes = b"") -> None:
        with self.changed:
            self.limit, self.word, self.waiting = limit, word, False
            self.changed.notify_all()

    def open_and_wait(self, limit: float = float("inf"), word: bytes = b"") -> None:
        """Opens the gate up to a new limit or word. Returns once data waits there."""
        self.open(limit, word)
        wait_until(lambda: self.waiting)

    def lose_a_reply(self) -> None:
        """Makes the next reply get lost, with its connection."""
        self.loses = True

    def drop_connections(self) -> None:
        shut_down(*self.sockets)
        self.open()  # so that threads that hold data back notice

    def close(self) -> None:
        shut_down(self.listener)
        self.drop_connections()
        for thread in self.threads:
            thread.join()
        self.listener.close()


@contextmanager
def opened(server: Server) -> Iterator[Gate]:
    """Yields a gate that is open."""
    with closing(Gate(server)) as gate:
        gate.open()
        yield gate
