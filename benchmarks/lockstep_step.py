"""What a step costs in which only the sampler works: `ElasticBatchSampler` beside torch's `DistributedSampler`."""

from .answers import one_answer
from .arena import Arena, DidNotCome
from .case import Case, Outcome
from .launchers import Launcher

STEPS = 5_000
BOUND = 120.0

OURS = Launcher("ElasticBatchSampler", "bare")
TORCH = Launcher("torch's DistributedSampler in a BatchSampler", "bare")


def _measured(arena: Arena, launcher: Launcher, batch: int) -> Outcome:
    kind = "elastic" if launcher is OURS else "torch"
    try:
        first, others = one_answer(arena, "lockstep_loop.py", (kind, str(batch), str(STEPS)), BOUND)
    except DidNotCome as error:
        return Outcome(None, str(error))
    return Outcome(first + others, phases=(first, others))


def _case(batch: int) -> Case:
    return Case(
        name=f"lockstep_step_{batch}",
        title=f"{STEPS:,} batches of {batch} from the sampler alone, one rank of 8",
        about=f"Every batch drawn, and with ours each step committed; {8 * batch * STEPS / 1e6:g} million records, "
        "shuffled; no loader and no model. 0.1 s here are 20 us in each step: 0.4% of a step of 5 ms.",
        until="last batch",
        bound=BOUND,
        ours=OURS,
        peers=(TORCH,),
        measure=lambda arena, launcher, _: _measured(arena, launcher, batch),
        phases=("the first batch", "all others"),
        first_phase="",
    )


CASES = (_case(32), _case(256))
