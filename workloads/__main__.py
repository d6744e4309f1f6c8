"""`python -m workloads`."""

import sys

from workloads.cli import main

if __name__ == "__main__":
    sys.exit(main())
