"""How often whyidle is right on training scripts with known causes: `make bench-truth`; more with ARGS="--help"."""

from __future__ import annotations

import sys

from scenarios.bench.command import main

if __name__ == "__main__":
    sys.exit(main())
