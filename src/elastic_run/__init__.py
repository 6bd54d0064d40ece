"""Start any training script on any number of machines, and let the number change while it runs.

Importing this package loads nothing heavy: the names below load their rooms at first use.
"""

from typing import TYPE_CHECKING, Any

from .rendezvous.version import VERSION as __version__

if TYPE_CHECKING:
    from .adapters.membership import Membership, membership
    from .adapters.shards import Shard, Shards, is_current, shards
    from .adapters.trace import mark, span
    from .adapters.world import World, world
    from .launcher.launch import LaunchFailed, elastic_launch, launch

__all__ = [
    "LaunchFailed",
    "Membership",
    "Shard",
    "Shards",
    "World",
    "__version__",
    "elastic_launch",
    "is_current",
    "launch",
    "mark",
    "membership",
    "shards",
    "span",
    "world",
]


def __getattr__(name: str) -> Any:  # Any: the type of whichever name is asked for
    if name in ("World", "world"):
        from .adapters import world as room
    elif name in ("Membership", "membership"):
        from .adapters import membership as room
    elif name in ("Shard", "Shards", "is_current", "shards"):
        from .adapters import shards as room
    elif name in ("mark", "span"):
        from .adapters import trace as room
    elif name in ("LaunchFailed", "elastic_launch", "launch"):
        from .launcher import launch as room
    else:
        raise AttributeError(f"module 'elastic_run' has no attribute {name!r}")
    return getattr(room, name)
