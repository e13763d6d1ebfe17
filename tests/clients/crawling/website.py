"""A web site on loopback. Its pages link to each other many times, with different spellings of their URLs, and through
redirects.

It records the requests that it serves, in order.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from servers import HOST

LINKS = 12  # random pages that a page links to, besides its two children in a tree of all pages
SPELLINGS = ("/page?id={}&lang=en", "/page?lang=en&id={}", "/page?id={}&lang=en#top")


class Site:
    """A site with the pages 0 to `pages` - 1. Following links from page 0 leads to all of them."""

    def __init__(self, pages: int, delay: float) -> None:
        """Starts the server. `delay` is the time in seconds that each reply takes."""
        self.pages, self.delay = pages, delay
        self.served: list[str] = []
        # The number of requests in progress, by the first part of their path.
        self.serving: Counter[str] = Counter()
        self.bans: Counter[int] = Counter()  # how many more times a page bans crawlers
        self.lock = threading.Lock()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                """Ignores broken connections, which killed crawlers leave."""

        self.http = Server((HOST, 0), Handler)
        self.root = f"http://{HOST}:{self.http.server_port}"

    def url(self, page: int) -> str:
        return self.root + SPELLINGS[0].format(page)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        url = urlsplit(handler.path)
        kind = url.path.split("/")[1]
        with self.lock:
            self.served.append(handler.path)
            self.serving[kind] += 1
        time.sleep(self.delay)
        with self.lock:
            self.serving[kind] -= 1
        if url.path.startswith("/go/"):
            self.reply(
                handler, 302, "", Location=SPELLINGS[1].format(url.path.removeprefix("/go/"))
            )
        elif url.path in ("/page", "/item"):
            page = int(parse_qs(url.query)["id"][0])
            self.bans[page] -= 1
            self.reply(handler, 200, "You are banned" if self.bans[page] >= 0 else self.body(page))
        else:
            self.reply(handler, 404, "")

    @staticmethod
    def reply(handler: BaseHTTPRequestHandler, status: int, body: str, **headers: str) -> None:
        encoded = body.encode()
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Type", "text/html; charset=utf-8")
        handler.send_header("Content-Length", str(len(encoded)))
        handler.end_headers()
        handler.wfile.write(encoded)

    def body(self, page: int) -> str:
        chance = random.Random(page)
        children = [child for child in (2 * page + 1, 2 * page + 2) if child < self.pages]
        others = [chance.randrange(self.pages) for _ in range(LINKS)]
        links = [chance.choice(SPELLINGS).format(other) for other in children + others * 2]
        links += [f"/go/{other}" for other in others[:2]]
        chance.shuffle(links)
        return "".join(f'<a href="{link}">{link}</a>\n' for link in links)

    def visits(self) -> Counter[int]:
        """Returns how often each page was served."""
        return Counter(
            int(parse_qs(url.query)["id"][0])
            for url in map(urlsplit, list(self.served))
            if url.path == "/page"
        )


@contextmanager
def site(pages: int = 150, delay: float = 0.005) -> Iterator[Site]:
    site = Site(pages, delay)
    thread = threading.Thread(target=site.http.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield site
    finally:
        site.http.shutdown()
        thread.join()
        site.http.server_close()
