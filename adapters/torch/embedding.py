"""Embeddings whose rows are on the job's servers, as a module of PyTorch."""

import inspect
import os
import weakref
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn import functional
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from ..servers import specs
from ..servers.errors import TableMisused
from ..servers.row_table import declare_table, servers_client

if TYPE_CHECKING:
    from ..servers.server_events import Array
    from ..servers.string_ids import Strings

MODES = ("sum", "mean")

DTYPES: dict[torch.dtype, specs.Numbers] = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}


class RowsGradient:
    """Of rows that were pulled, which live as long as `backward` can come to them: whatever was computed from them has
    them.

    Args:
        rows: a leaf.
        table: its name.
    """

    def __init__(self, rows: Tensor, table: str) -> None:
        self._rows = weakref.ref(rows)
        self._table = table
        self._found: Tensor | None = None
        self._taken = False
        hooked: Any = rows  # torch has no type for this
        hooked.register_post_accumulate_grad_hook(self._keep_gradient)

    def _keep_gradient(self, rows: Tensor) -> None:
        if self._taken:
            raise TableMisused(
                f"table {self._table!r}: backward() comes a second time to rows whose gradient was pushed already: "
                "call shard.progress(n) or shard.done() after the last backward() of its records"
            )
        self._found = rows.grad

    def take_gradient(self) -> "Array | None":
        """(n, columns) float32; None where there is none yet. From then on no more may come."""
        self._taken = self._found is not None
        return None if self._found is None else self._found.cpu().numpy()

    def may_come(self) -> bool:
        """Whether the rows are there still."""
        return self._rows() is not None


class Embedding(nn.Module):
    """Looks rows up by id. A row is made on the job's servers when its id is first trained on; nobody says how many.

    The gradients of a step are pushed by the call that says of which records they are: `shard.progress(n)`,
    `shard.done()` or `loader.commit()`. They are those of the loss that is there: each worker's own.

    Args:
        name: of the table: one for each, in a job.
        dim: numbers in a row.
        optimizer: of the rows, from `elastic_run.servers`.
        initializer: what a row is before its first gradient; None: `Normal()`.
        seed: of the initializer.
        mode: what a bag of ids is: the "sum" of its rows, or their "mean".
        unusable: what is done with gradients that are no finite numbers: "refuse" the push, or "skip" those rows.
        max_staleness: steps that any other worker of the job may be behind this one when it pulls rows to train on;
            else it waits. A step is a call that names records. 0: all make their steps together. None: nobody waits.
            Rows from `prefetch` that would lack more are pulled again, and with None those that lack more than one push
            of this worker.
        dtype: of what it gives: torch.float32, torch.bfloat16 or torch.float16. Rows and gradients travel in it, so
            with half of the bytes. Servers keep float32, and gradients are summed in float32 before they travel.
        admit_after: an id gets its row with the so manieth push that has it; until then it shares one with other such
            ids. 0 or 1: with the first.
        evict: which rows go: `servers.LeastRecent`, `LeastFrequent` or `OlderThan`; None: none.

    Ids may be strings: a list, lists of one length, or an array of numpy. Each is its hash of 64 bits under `seed`
    (`elastic_run.servers.string_ids`).

    Raises:
        elastic_run.exceptions.TableMisused: the job has no servers, or other ranks declare the table otherwise.
        elastic_run.exceptions.ServerGone: the server does not answer.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        optimizer: specs.Optimizer,
        initializer: specs.Initializer | None = None,
        *,
        seed: int = 0,
        mode: str = "sum",
        unusable: Literal["refuse", "skip"] = "refuse",
        max_staleness: int | None = None,
        dtype: torch.dtype = torch.float32,
        admit_after: int = 0,
        evict: specs.Eviction | None = None,
    ) -> None:
        super().__init__()
        if mode not in MODES:
            raise TableMisused(f"table {name!r}: mode={mode!r} must be sum or mean")
        if dtype not in DTYPES:
            raise TableMisused(
                f"table {name!r}: dtype={dtype!r} must be torch.float32, torch.bfloat16 or torch.float16"
            )
        begun, numbers = initializer or specs.Normal(), DTYPES[dtype]
        spec = specs.TableSpec(
            name, dim, optimizer, begun, seed, unusable, max_staleness, numbers, admit_after=admit_after, evict=evict
        )
        self.spec = declare_table(spec)
        self.dtype = dtype
        self._has_strings = False
        self.mode = mode
        check_optimizers()

    def forward(self, ids: "Tensor | Strings | Array", offsets: Tensor | None = None) -> Tensor:
        """The rows of `ids` (int64, any shape): ids.shape + (dim,), of `dtype`, where `ids` are; of strings on the CPU.

        Args:
            offsets: int64, (bags,): where in `ids` (then of one dimension) each bag begins, as for `nn.EmbeddingBag`;
                what is returned is (bags, dim).

        Raises:
            elastic_run.exceptions.TableMisused: the ids are neither int64 nor strings, or nothing says of which
                records they are.
            elastic_run.exceptions.ServerGone: the server does not answer.
        """
        ids = self._as_tensor(ids)
        table, here, flat = self.spec.name, servers_client(), self._flat(ids)
        trains = self.training and torch.is_grad_enabled()
        distinct, rows, inverse = here.pull_for_step(self.spec, flat, trains=trains)
        leaf = torch.as_tensor(rows).to(ids.device)
        if trains:
            awaited = RowsGradient(leaf.requires_grad_(), table)
            here.await_gradient(table, distinct, awaited.take_gradient, awaited.may_come)
        places = torch.as_tensor(inverse).to(ids.device)
        if offsets is None:
            return functional.embedding(places.reshape(ids.shape), leaf).to(self.dtype)
        return functional.embedding_bag(places, leaf, offsets, mode=self.mode).to(self.dtype)

    def prefetch(self, ids: "Tensor | Strings | Array") -> None:
        """Asks for the rows of the next batch, and does not wait: the call with the same `ids` finds them on their way.

        Call it before the step of the batch at hand; see `max_staleness`.

        Args:
            ids: as they are called with then.

        Raises:
            elastic_run.exceptions.TableMisused: the ids are neither int64 nor strings.
        """
        servers_client().prefetch(self.spec.name, self._flat(self._as_tensor(ids)))

    def _as_tensor(self, ids: "Tensor | Strings | Array") -> Tensor:
        if isinstance(ids, Tensor):
            return ids
        from ..servers.string_ids import hash_strings

        self._has_strings = True
        return torch.as_tensor(hash_strings(ids, self.spec.seed))

    def _flat(self, ids: Tensor) -> "Array":
        if ids.dtype != torch.int64:
            raise TableMisused(f"table {self.spec.name!r}: ids are {ids.dtype}, and must be torch.int64")
        return ids.detach().contiguous().reshape(-1).cpu().numpy()

    def rows(self, ids: "Tensor | Strings | Array") -> Tensor:
        """The rows of `ids` (any shape) as they are now: ids.shape + (dim,), of `dtype`. No gradient follows."""
        ids = self._as_tensor(ids)
        _, rows, inverse = servers_client().pull(self.spec.name, self._flat(ids))
        return torch.as_tensor(rows[inverse]).reshape(*ids.shape, self.spec.columns).to(self.dtype)

    def extra_repr(self) -> str:
        """What `print(model)` says of it; where ids were strings, also how likely two of them share a row."""
        words = [f"{self.spec.name!r}, dim={self.spec.columns}, {self.spec.optimizer!r}"]
        if self.dtype != torch.float32:
            words.append(f"dtype={self.dtype}")
        if self._has_strings:
            odds = (f"{count:.0e}: {specs.collision_probability(count):.0e}" for count in (10**6, 10**8, 10**9))
            words.append(f"strings as 64-bit hashes (probability that two of so many are the same: {', '.join(odds)})")
        return ", ".join(words)


def _is_scaled() -> bool:
    """Whether the step under way is a GradScaler's, which knows nothing of the rows' gradients."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not GradScaler.step.__code__:
        frame = frame.f_back
    return frame is not None and frame.f_locals["self"].is_enabled()


_checked: set[int] = set()
"""Processes whose optimizers are looked at."""


def check_optimizers() -> None:
    """From now on each step of an optimizer is looked at: see `ServersClient.check_step`."""
    from ..servers.session import check_step

    if os.getpid() not in _checked:
        _checked.add(os.getpid())

        def check(optimizer: Optimizer, *_: Any) -> None:
            check_step(id(optimizer), scaled=_is_scaled())

        register_optimizer_step_pre_hook(check)
