"""What the launcher raises.

ElasticRunError
├── UsageError                     the command line, or the call of `launch`, cannot be run; nothing was started
└── LaunchFailed (RuntimeError)    the job of a `launch` did not succeed
"""

from typing import TYPE_CHECKING

from ..rendezvous.base.errors import ElasticRunError

if TYPE_CHECKING:
    from ..elastic_agent.agent import Result


class UsageError(ElasticRunError, public=True):
    """The command line cannot be run; the message says what was wrong and what to do. Exit code 2."""


class LaunchFailed(ElasticRunError, RuntimeError, public=True):
    """The job did not succeed.

    Attributes:
        code: the exit code that `elastic-run` would have had.
        result: the rest of what the agent of this node knows at the end.
    """

    def __init__(self, result: "Result", reason: str = "") -> None:
        super().__init__(reason or f"{result.reason} (exit code {result.code})")
        self.code = result.code
        self.result = result
