"""Start any training script on any number of machines, and let the number change while it runs.

Importing this package loads nothing heavy: the names below load their rooms at first use.
"""

from typing import TYPE_CHECKING, Any

from .rendezvous.version import VERSION as __version__

if TYPE_CHECKING:
    from .adapters.client.context import World, world
    from .adapters.client.rounds import Membership, membership
    from .adapters.client.script_trace import mark, span
    from .adapters.client.shards import Shard, Shards, is_current, shards
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
        from .adapters.client import context as room
    elif name in ("Membership", "membership"):
        from .adapters.client import rounds as room
    elif name in ("Shard", "Shards", "is_current", "shards"):
        from .adapters.client import shards as room
    elif name in ("mark", "span"):
        from .adapters.client import script_trace as room
    elif name in ("LaunchFailed", "elastic_launch", "launch"):
        from .launcher import launch as room
    else:
        raise AttributeError(f"module 'elastic_run' has no attribute {name!r}")
    return getattr(room, name)
