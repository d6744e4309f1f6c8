"""`python -m tracer.workloads`."""

import sys

from tracer.workloads.cli import main

if __name__ == "__main__":
    sys.exit(main())
