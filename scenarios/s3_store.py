"""An S3 store (moto) that answers late, with one bucket, `training`; prints its port first.

python s3_store.py [--delay-ms 20] [--objects 64] [--object-bytes 200000]
"""

from __future__ import annotations

import argparse
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def delayed(application: Application, delay_s: float) -> Application:
    """Answer each GET after a pause."""

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "GET":
            time.sleep(delay_s)
        return application(environ, start)

    return answer


def main() -> None:
    """Serve on a free port of the loopback until a signal ends us."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--objects", type=int, default=64)
    parser.add_argument("--object-bytes", type=int, default=200_000)
    args = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    application = DomainDispatcherApplication(create_backend_app)
    late = delayed(application, args.delay_ms / 1e3)
    server = make_server("127.0.0.1", 0, late, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    fill(server.server_port, args.objects, args.object_bytes)
    print(server.server_port, flush=True)
    threading.Event().wait()


def fill(port: int, objects: int, object_bytes: int) -> None:
    """Put the objects into the store."""
    client = boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1"
    )
    client.create_bucket(Bucket="training")
    for number in range(objects):
        key = f"{number:05d}.bin"
        client.put_object(Bucket="training", Key=key, Body=os.urandom(object_bytes))


if __name__ == "__main__":
    main()
