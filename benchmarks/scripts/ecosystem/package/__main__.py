"""What `-m package` runs."""

import sys
from pathlib import Path

from .loop import train

if __name__ == "__main__":
    train(Path(sys.argv[1]))
