"""What torchrun finds under the entry points `torchrun.handlers`: `--rdzv-backend=elastic-etcd`.

torch loads this module whenever its elastic package is imported, in workers too: it imports nothing until it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters

NAME = "elastic-etcd"


def handler() -> "Callable[[RendezvousParameters], RendezvousHandler]":
    """What torch registers as the maker of handlers."""
    return _make


def _make(parameters: "RendezvousParameters") -> "RendezvousHandler":
    from .etcd_rendezvous import make

    return make(parameters)
