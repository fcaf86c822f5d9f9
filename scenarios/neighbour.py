"""Somebody else's work: uses a whole CPU under a name of its own, until a signal ends it.

python neighbour.py NAME [BUSY_S REST_S]     with the numbers it rests in between
"""

from __future__ import annotations

import sys
import time
from pathlib import Path


def main() -> None:
    """Take the name, then compute for ever."""
    Path("/proc/self/comm").write_text(sys.argv[1])
    busy_s, rest_s = (float(it) for it in sys.argv[2:] or ("1", "0"))
    while True:
        end_s = time.monotonic() + busy_s
        number = 1
        while time.monotonic() < end_s:
            for _ in range(1000):
                number = number * 1_103_515_245 % 2_147_483_647 + 1
        time.sleep(rest_s)


if __name__ == "__main__":
    main()
