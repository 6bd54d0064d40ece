"""A package beside the script."""

print("the package is imported as", __name__)

from .inner import names
