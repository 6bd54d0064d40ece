"""`elastic_run.launch`: the launcher as a function call, for a function instead of a script.

The function travels as `module:name`, its arguments and results as JSON: nothing is pickled, so what cannot be found
by name in another process is refused in words, before anything starts.
"""

import asyncio
import hashlib
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from ..elastic_agent.agent import Result
from .call import CALL_FILE
from .options import UsageError, parse
from .run import run


class LaunchFailed(RuntimeError):
    """The job did not succeed. `code` is the exit code that `elastic-run` would have had; `result` has the rest."""

    def __init__(self, result: Result, reason: str = "") -> None:
        super().__init__(reason or f"{result.reason} (exit code {result.code})")
        self.code = result.code
        self.result = result


def launch(
    fn: Callable[..., Any],  # Any: users' own functions
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    **flags: Any,  # text, numbers and switches, as on the command line
) -> dict[int, Any]:
    """Runs `fn(*args, **kwargs)` in every worker of an elastic job, and returns this node's results by rank.

    Args:
        fn: a function at the top level of a module or of the main script.
        args, kwargs: its arguments; JSON values.
        flags: options of `elastic-run` with underscores, as in `nnodes="2:4"`, `nproc_per_node=2`; True for switches.

    Returns:
        what each local worker of the last round returned, by global rank.

    Raises:
        UsageError: a flag, the function or an argument cannot be used; nothing was started.
        LaunchFailed: the job failed, was refused, or was told to leave.
    """
    target = name_of(fn)
    try:
        call = json.dumps({"path": sys.path, "args": list(args), "kwargs": dict(kwargs or {})})
        facts = json.dumps([list(args), dict(kwargs or {})], sort_keys=True)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the arguments of {target} travel as JSON, and these do not fit: {error}") from None
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("launch handles signals, so it must be called from the main thread")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise UsageError("launch runs an event loop of its own and cannot be called inside one (a notebook, a server)")
    folder = Path(tempfile.mkdtemp(prefix="elastic-run-call-"))
    try:
        file = folder / "call.json"
        file.write_text(call, encoding="utf-8")
        names = {} if "rdzv_id" in flags else {"rdzv_id": f"{fn.__name__}-{_digest([target, facts])}"}
        argv = [*_flags({**names, **flags}), "-m", "elastic_run.launcher.call", target, _digest([facts])]
        result = asyncio.run(run(parse(argv, os.environ), {**os.environ, CALL_FILE: str(file)}))
        if result.code != 0:
            raise LaunchFailed(result)
        ranks = sorted(exit_.rank for exit_ in result.exits)
        silent = [rank for rank in ranks if not (folder / f"result-{rank}.json").is_file()]
        if silent:
            raise LaunchFailed(
                result, f"{target} did not return on rank {silent[0]}: its worker ended with code 0 by another way"
            )
        return {rank: json.loads((folder / f"result-{rank}.json").read_bytes()) for rank in ranks}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class elastic_launch:
    """As `torch.distributed.launcher.api.elastic_launch`: `elastic_launch(config, function)(*args)`.

    Args:
        config: torch's `LaunchConfig`, or anything with its attributes.
        entrypoint: the function; as for `launch`.
    """

    def __init__(self, config: Any, entrypoint: Callable[..., Any]) -> None:  # Any: torch's class is not imported
        self._flags: dict[str, Any] = _flags_of(config)
        self._entrypoint = entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        """Runs the function in every worker; see `launch`."""
        return launch(self._entrypoint, args, **self._flags)


def name_of(fn: Callable[..., Any]) -> str:
    """How another process finds `fn`. Raises UsageError for what has no name there."""
    if not isinstance(fn, FunctionType | type):
        raise UsageError(f"launch takes a function, and {fn!r} is none (a method or a partial has no name elsewhere)")
    name = fn.__qualname__
    if "<lambda>" in name:
        raise UsageError("launch cannot take a lambda: it has no name by which a worker could find it; use def")
    if "<locals>" in name:
        raise UsageError(f"{name} is defined inside a function, where no worker can find it: move it to the top level")
    if fn.__module__ != "__main__":
        return f"{fn.__module__}:{name}"
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return f"{spec.name}:{name}"
    file = getattr(main, "__file__", None)
    if not file or not Path(file).is_file():
        raise UsageError(
            f"{name} is defined in an interactive session or a notebook, where no worker can find it: "
            "put it into a module and import it"
        )
    return f"{Path(file).resolve()}:{name}"


def _digest(texts: Sequence[str]) -> str:
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=4).hexdigest()


def _flags(flags: Mapping[str, Any]) -> list[str]:
    given: list[str] = []
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            given.append(flag)
        elif value is not None and value is not False:
            given.append(f"{flag}={value}")
    return given


def _flags_of(config: Any) -> dict[str, Any]:  # Any: torch's class is not imported
    flags: dict[str, Any] = {
        "nnodes": f"{config.min_nodes}:{config.max_nodes}",
        "nproc_per_node": config.nproc_per_node,
        "max_restarts": config.max_restarts,
    }
    endpoint = getattr(config, "rdzv_endpoint", "")
    if endpoint:
        flags["rdzv_endpoint"] = endpoint
    if run_id := getattr(config, "run_id", ""):
        flags["rdzv_id"] = run_id
    if (role := getattr(config, "role", "")) and role != "default_role":
        flags["role"] = role
    conf: Mapping[str, Any] = getattr(config, "rdzv_configs", None) or {}
    if conf:
        flags["rdzv_conf"] = ",".join(f"{key}={value}" for key, value in conf.items())
    if address := getattr(config, "local_addr", None):
        flags["local_addr"] = address
    return flags
