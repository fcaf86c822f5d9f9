"""Somebody else's work: uses a whole CPU under a name of its own, until a signal ends it.

python neighbour.py NAME
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Take the name, then compute for ever."""
    Path("/proc/self/comm").write_text(sys.argv[1])
    number = 1
    while True:
        number = number * 1_103_515_245 % 2_147_483_647 + 1


if __name__ == "__main__":
    main()
