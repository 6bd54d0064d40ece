"""Start any training script on any number of machines, and let the number change while it runs.

Importing this package loads nothing heavy: the names below load their rooms at first use.
"""

from .rendezvous.version import VERSION as __version__

__all__ = ["__version__"]
