"""`warploom` and `python -m warploom`."""

import sys

from warploom.cli import main

if __name__ == "__main__":
    sys.exit(main())
