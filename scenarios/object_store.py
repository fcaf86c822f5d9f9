"""An object store that answers every GET with the same bytes after a pause; prints its port first.

python object_store.py [--delay-ms 8] [--object-bytes 30000] [--picture 800x600]
                       [--slow-delay-ms 60 --slow-every-s 2.5 --slow-for-s 1]
"""

from __future__ import annotations

import argparse
import io
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    delay_s: ClassVar[float]
    slow_delay_s: ClassVar[float]
    slow_every_s: ClassVar[float]
    slow_for_s: ClassVar[float]
    body: ClassVar[bytes]

    def pause_s(self) -> float:
        """How late to answer now: at the end of each round it is a bad time."""
        left_s = self.slow_every_s - time.monotonic() % max(self.slow_every_s, 1e-9)
        is_slow = self.slow_every_s > 0 and left_s < self.slow_for_s
        return self.slow_delay_s if is_slow else self.delay_s

    def do_GET(self) -> None:
        """Answer late, in one write: two would meet Nagle and a delayed acknowledgement (40 ms)."""
        if pause_s := self.pause_s():
            time.sleep(pause_s)
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(self.body)}\r\n\r\n"
        self.wfile.write(head.encode() + self.body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Takes a burst of connections without refusing any."""

    request_queue_size = 64
    daemon_threads = True


def picture(size: str) -> bytes:
    """Give a JPEG file of this size, as in 800x600."""
    import numpy as np
    from PIL import Image

    width, height = (int(number) for number in size.split("x"))
    generator = np.random.default_rng(0)
    coarse = generator.integers(0, 256, (height // 8, width // 8, 3), np.uint8)
    content = io.BytesIO()
    Image.fromarray(coarse).resize((width, height)).save(content, "JPEG", quality=88)
    return content.getvalue()


def main() -> None:
    """Serve on a free port of the loopback until a signal ends us."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--object-bytes", type=int, default=30_000)
    parser.add_argument("--picture", help="a JPEG file of this size instead of zeros")
    parser.add_argument("--slow-delay-ms", type=float, default=0.0)
    parser.add_argument("--slow-every-s", type=float, default=0.0)
    parser.add_argument("--slow-for-s", type=float, default=0.0)
    args = parser.parse_args()
    Handler.delay_s = args.delay_ms / 1e3
    Handler.slow_delay_s = args.slow_delay_ms / 1e3
    Handler.slow_every_s = args.slow_every_s
    Handler.slow_for_s = args.slow_for_s
    Handler.body = picture(args.picture) if args.picture else bytes(args.object_bytes)
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
