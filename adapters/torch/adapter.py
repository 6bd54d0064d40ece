"""PyTorch's adapter: what torchrun's users expect of a launcher, without torch (pure)."""

from collections.abc import Mapping

from ..contract import Hint, Meeting, Round, Worker
from ..plain import COLLECTIVES, Plain
from . import environment


class Torch(Plain):
    """Gives workers the environment that torchrun gives them."""

    name = "torch"
    # Its store client tries again only after 0.35 to 0.75 s where rank 0 does not listen yet.
    meets_through = Meeting("torch", later=0.01, held=0.1)
    per_worker = environment.PER_WORKER
    consequences = (
        *COLLECTIVES,
        r"DistNetworkError",
        r"DistBackendError",
        r"DistStoreError",
        r"store.*(timed? ?out|closed)",
        r"timed out .*store",
        r"monitoredBarrier",
    )
    hints = (
        Hint(
            r"CUDA out of memory|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY",
            "the accelerator's memory is full: try a smaller batch, and look for another process that uses it",
        ),
    )

    def environment(self, round: Round, worker: Worker, inherited: Mapping[str, str]) -> Mapping[str, str | None]:
        return environment.environment(round, worker, inherited)
