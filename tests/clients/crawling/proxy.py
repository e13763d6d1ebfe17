"""A proxy between clients and a server. It can lose replies."""

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from servers import HOST


class Proxy:
    """Forwards all data between clients and the server at `port`, except for a reply that it must lose."""

    def __init__(self, port: int) -> None:
        self.server_port = port
        self.lose = threading.Event()
        self.lost = 0
        self.closed = threading.Event()
        self.listener = socket.create_server((HOST, 0))
        self.listener.settimeout(0.05)
        self.port: int = self.listener.getsockname()[1]

    def run(self) -> None:
        while not self.closed.is_set():
            try:
                client, _ = self.listener.accept()
            except TimeoutError:
                continue
            threading.Thread(target=self.connect, args=(client,)).start()

    def connect(self, client: socket.socket) -> None:
        with client, socket.create_connection((HOST, self.server_port)) as server:
            selector = selectors.DefaultSelector()
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while not self.closed.is_set():
                for key, _ in selector.select(timeout=0.05):
                    data = key.fileobj.recv(65536)
                    if not data:
                        return
                    if key.fileobj is server and self.lose.is_set():
                        self.lose.clear()
                        self.lost += 1
                        return
                    key.data.sendall(data)


@contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """Starts a proxy. `lose.set()` makes it drop the next reply, and close its connection."""
    proxy = Proxy(port)
    thread = threading.Thread(target=proxy.run)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.closed.set()
        thread.join()
        proxy.listener.close()
