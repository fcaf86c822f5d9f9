"""An object store that answers every GET with the same bytes after a pause; prints its port first.

python object_store.py [--delay-ms 8] [--object-bytes 30000]
"""

from __future__ import annotations

import argparse
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    delay_s: ClassVar[float]
    body: ClassVar[bytes]

    def do_GET(self) -> None:
        """Answer late, in one write: two would meet Nagle and a delayed acknowledgement (40 ms)."""
        if self.delay_s:
            time.sleep(self.delay_s)
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.body)}\r\n\r\n"
        self.wfile.write(head.encode() + self.body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Takes a burst of connections without refusing any."""

    request_queue_size = 64
    daemon_threads = True


def main() -> None:
    """Serve on a free port of the loopback until a signal ends us."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--object-bytes", type=int, default=30_000)
    args = parser.parse_args()
    Handler.delay_s = args.delay_ms / 1e3
    Handler.body = bytes(args.object_bytes)
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
