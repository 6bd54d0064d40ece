"""`python -m elastic_run` is the command `elastic-run`."""

import sys

from .launcher.cli import main

if __name__ == "__main__":
    sys.exit(main())
