"""The command `elastic-job`: jobs on a Kubernetes cluster, which need nothing installed there but one Role.

    elastic-job submit --image=IMAGE --nnodes=2:8 -- train.py --epochs=3

What stands before `--` is for the job's pods, or a flag of `elastic-run`; what stands behind it is the script and its
arguments. The cluster is the one that kubectl speaks to.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from ...master.nodes.platform import PlatformError
from ..console import end_unread, refuse
from ..errors import UsageError
from . import control, pod_logs, progress
from .arguments import api_of, parser
from .managed_nodes import NO_PACKAGE
from .submit import submit

if TYPE_CHECKING:
    from ...master.nodes.kubernetes.api import Api

VERBS: Mapping[str, Callable[["Api", argparse.Namespace], int]] = {
    "list": progress.list_jobs,
    "status": progress.status,
    "logs": pod_logs.logs,
    "wait": progress.wait,
    "scale": control.scale,
    "suspend": control.suspend,
    "resume": control.suspend,
    "cancel": control.cancel,
    "delete": control.delete,
}
"""Each verb but `submit`, which takes more than its own arguments."""

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `elastic-job` with `argv` (default: the process's own) and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    behind = words.index("--") if "--" in words else len(words)
    try:
        arguments, flags = parser().parse_known_args(words[:behind])
        if arguments.verb != "submit" and (flags or words[behind + 1 :]):
            raise UsageError(f"elastic-job {arguments.verb}: {(flags or words[behind + 1 :])[0]} is not known")
        if arguments.verb == "submit":
            return submit(arguments, flags, words[behind + 1 :])
        return VERBS[arguments.verb](api_of(arguments), arguments)
    except (UsageError, ValueError) as error:
        return refuse(str(error), command="elastic-job")
    except PlatformError as error:
        return refuse(f"the cluster: {error}", command="elastic-job")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("kubernetes", "yaml"):  # the one brings the other
            raise
        return refuse(NO_PACKAGE, command="elastic-job")
    except KeyboardInterrupt:
        return INTERRUPTED


def run() -> NoReturn:
    try:
        try:
            code = main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        end_unread()
        raise
    sys.exit(code)
