"""From the last line of the last worker to the end of its launcher."""

from collections.abc import Callable

from .answers import plain_work
from .arena import Arena, DidNotCome, free_port
from .case import Case, Outcome
from .launchers import OURS, TORCHRUN, Job, Launcher

WORKERS = 2
BOUND = 60.0
REST_SECONDS = 1.0


def alone(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """`--standalone`."""
    return _measured(arena, launcher, None)


def with_store(arena: Arena, launcher: Launcher, number: int) -> Outcome:
    """With a store at an address."""
    return _measured(arena, launcher, free_port())


def _measured(arena: Arena, launcher: Launcher, port: int | None) -> Outcome:
    words = plain_work(arena, 0, 0, REST_SECONDS)
    process = arena.launch(launcher, Job(arena.job_id, "1", WORKERS, port, words))
    try:
        gone = arena.ended(process, BOUND)
        last = arena.until(lambda: arena.journal.first_lines(WORKERS), BOUND)
    except DidNotCome as error:
        return Outcome(None, str(error))
    return Outcome((gone - last) / 1e9)


def _case(name: str, title: str, about: str, measure: Callable[[Arena, Launcher, int], Outcome]) -> Case:
    return Case(
        name=name,
        title=title,
        about=about,
        until="launcher gone",
        bound=BOUND,
        ours=OURS,
        peers=(TORCHRUN,),
        measure=measure,
        warm_up=True,
    )


CASES = (
    _case(
        "exit",
        f"exit: from the last line of the last of {WORKERS} workers to the end of the launcher",
        "The script imports no framework and has rested for a second, so that its launcher has nothing else to do; all "
        "that the two interpreters do at their end is in it. Both with --standalone.",
        alone,
    ),
    _case(
        "exit_store",
        "exit with a store at an address: the same",
        "--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:PORT.",
        with_store,
    ),
)
