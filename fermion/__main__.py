"""`python -m fermion` is the command line."""

import sys

from fermion.cli import main

if __name__ == "__main__":
    sys.exit(main())
