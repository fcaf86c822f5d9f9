"""`python -m whyidle`."""

import sys

from whyidle.commands import main

if __name__ == "__main__":
    sys.exit(main())
