"""`-m shadows.package`: relative imports, and what `__main__` knows of itself."""

import os
import sys

from .. import colorsys
from . import names, talks
from .inner import names as again

print(__name__, __package__, __spec__.name, __spec__.parent, type(__loader__).__name__, __file__ == sys.argv[0])
print(names, talks.said, again is names, colorsys.OURS, sys.argv[1:], sys.orig_argv[1:])
print(sys.path[0], sys.modules["__main__"].__dict__ is globals(), [n for n in sys.modules if "package" in n])
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os._exit(3)
