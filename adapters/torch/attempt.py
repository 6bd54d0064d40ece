"""One process group of a State, from its forming to its end."""

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torch import distributed

from ..client.channel import AgentGone
from ..client.commits import StateLost
from ..client.rounds import NoAgent, Rounds
from ..client.script_trace import span
from .process_group import ElasticProcessGroup, Superseded

if TYPE_CHECKING:
    from .state import State

dist: Any = distributed  # half of it has no types in torch


class HostsUpdated(BaseException):
    """Nodes come or go in order, and the process group ends at a commit. No error, so `except Exception` lets it by.

    `run` catches it; a script has no need to.
    """

    __module__ = "elastic_run.torch"


class Attempt(contextlib.AbstractContextManager["Attempt"]):
    """One process group, from its forming to its end; see `State.attempts`.

    Attributes:
        finished: it was not cut short.
    """

    def __init__(
        self, state: "State", process_group: ElasticProcessGroup, members: Rounds, *, after: "Attempt | None" = None
    ) -> None:
        self._state = state
        self._process_group = process_group
        self._members = members
        self._first = after is None
        self._why = after._why if after is not None else ""  # what was broken, for the agent
        self._watch = contextlib.ExitStack()
        self.finished = False

    def __enter__(self) -> "Attempt":
        state, members, process_group = self._state, self._members, self._process_group
        take = not self._first or members.standby
        while True:
            own = False  # whether the script's own code runs
            try:
                if take:
                    members.next(self._why)
                take, self._why = True, ""
                with span("form the process group", round=members.context.round, ranks=members.context.world_size):
                    process_group.form(members.context)
                if not self._first:
                    own = True
                    for callback in state._callbacks:  # pyright: ignore[reportPrivateUsage]
                        callback()
                    own = False
                with span("sync the state"):
                    state.sync()
                if members.over:
                    raise Superseded
                break
            except Superseded:
                process_group.drop(broken=True)
            except (StateLost, NoAgent, AgentGone):
                raise
            except (RuntimeError, OSError) as error:
                if members.alone or (own and not self._is_broken(error)):
                    raise
                self._why = f"forming the process group failed: {_line(error)}"
                process_group.drop(broken=True)
        self._watch.enter_context(process_group.watched())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._watch.close()
        ended = error if error is not None else self._finish()
        self.finished = ended is None
        if ended is None:
            return False
        planned = isinstance(ended, HostsUpdated)
        if not planned and not self._is_broken(ended):
            if ended is error:
                return False
            raise ended
        self._state._leave(broken=not planned)  # pyright: ignore[reportPrivateUsage]
        if not planned:
            self._why = _line(ended)
        self._process_group.drop(broken=not planned)
        return True

    def _finish(self) -> BaseException | None:
        """Ends the training, all ranks together; why it goes on instead."""
        try:
            self._state._finish()  # pyright: ignore[reportPrivateUsage]
        except (NoAgent, AgentGone):
            raise
        except (HostsUpdated, RuntimeError, OSError) as error:
            return error
        return None

    def _is_broken(self, error: BaseException) -> bool:
        """The process group is, whatever the error was: what was begun is trained again, and an error of the script's
        own then comes again."""
        if self._members.alone or not isinstance(error, Exception):
            return False
        return self._members.broken or self._members.over or isinstance(error, dist.DistError)


def _line(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
