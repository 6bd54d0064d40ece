"""What ten million shards cost a master: its memory, what is kept of them, and how long that takes to read again."""

from . import dlrover
from .answers import one_answer
from .arena import Arena, DidNotCome
from .case import Case, Outcome
from .launchers import Launcher

RESTORES = 20
BOUND = 120.0

OURS = Launcher("elastic-run", "bare")


def _measured(arena: Arena, launcher: Launcher, _: int) -> Outcome:
    try:
        if launcher is OURS:
            found = one_answer(arena, "ledger_size.py", ("elastic-run", str(RESTORES)), BOUND)
        else:
            found = one_answer(arena, "ledger_size.py", ("dlrover", str(RESTORES)), BOUND, dlrover.interpreter())
    except DidNotCome as error:
        return Outcome(None, str(error))
    return Outcome(
        found["seconds"],
        f"{_amount(found['early'])} in the master's memory at the beginning, {_amount(found['late'])} after 100,000 "
        f"shards; {_amount(found['kept'])} to keep",
    )


def _amount(count: int) -> str:
    """Bytes, roughly enough that two runs say the same."""
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


CASES = (
    Case(
        name="ledger_size",
        title=f"{RESTORES} times, the ledger of 10 million shards is read back",
        about="Four workers have eight shards each, 100,000 shards are done; no server and no store takes part. "
        "elastic-run keeps what is not done in order, and reads it from the store. DLRover lists at most 50,000 "
        "shards at a time (and shuffles within them); the list is what its clients may save as a checkpoint.",
        until="last ledger",
        bound=BOUND,
        ours=OURS,
        peers=(dlrover.PEER,),
        measure=_measured,
    ),
)
