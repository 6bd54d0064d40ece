"""What `-m trainer_package` runs."""

import sys

from .loop import train

if __name__ == "__main__":
    train(sys.argv[1])
