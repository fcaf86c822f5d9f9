"""`python -m scenarios.bench` is `make bench-truth`."""

import sys

from scenarios.bench.command import main

if __name__ == "__main__":
    sys.exit(main())
