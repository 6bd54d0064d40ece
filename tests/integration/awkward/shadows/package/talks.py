"""Prints while it is imported, on both streams, and warns."""

import sys
import warnings

print("talks is imported", end=" ")
print("and says so", file=sys.stderr)
warnings.warn("it warns while it is imported", stacklevel=2)
said = (__name__, __package__, sys._getframe(0).f_lineno)
