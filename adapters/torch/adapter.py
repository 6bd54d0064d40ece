"""PyTorch's adapter: what torchrun's users expect of a launcher, without torch (pure)."""

from collections.abc import Mapping

from ..contract import Hint, Round, Worker
from ..plain import COLLECTIVES, Plain
from . import environment


class Torch(Plain):
    """Gives workers the environment that torchrun gives them."""

    name = "torch"
    meets_through = "torch"  # its store client tries again only after 0.35 to 0.75 s
    per_worker = environment.PER_WORKER
    consequences = (
        *COLLECTIVES,
        r"DistNetworkError",
        r"DistBackendError",
        r"DistStoreError",
        r"store.*(timed? ?out|closed)",
        r"timed out .*store",
    )
    hints = (
        Hint(
            r"CUDA out of memory|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY",
            "the accelerator's memory is full: try a smaller batch, and look for another process that uses it",
        ),
    )

    def environment(self, round: Round, worker: Worker, inherited: Mapping[str, str]) -> Mapping[str, str | None]:
        """See `environment.py`."""
        return environment.environment(round, worker, inherited)
