"""`elastic_run.launch`: the launcher as a function call, for a function instead of a script.

The function travels as `module:name`, its arguments and results as JSON: nothing is pickled, so what cannot be found
by name in another process is refused in words, before anything starts.
"""

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from ..rendezvous.host import leftovers
from .call import CALL_FILE
from .early import SECRETS, worker_settings
from .errors import LaunchFailed, UsageError
from .options.parse import parse
from .run import run
from .settings import Command
from .store_access import GRPC_VERBOSITY

CALL_PREFIX = "elastic-run-call-"


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
        elastic_run.exceptions.UsageError: a flag, the function or an argument cannot be used; nothing was started.
        elastic_run.exceptions.LaunchFailed: the job failed, was refused, or was told to leave.
    """
    target = name_of(fn)
    try:
        call = json.dumps({"path": sys.path, "args": list(args), "kwargs": dict(kwargs or {})})
        facts = json.dumps([list(args), dict(kwargs or {})], sort_keys=True)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the arguments of {target} cannot be encoded as JSON: {error}") from None
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("launch handles signals, so it must be called from the main thread")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise UsageError("launch runs its own event loop and cannot be called inside another (a notebook, a server)")
    with call_folder() as folder:
        file = folder / "call.json"
        file.write_text(call, encoding="utf-8")
        names = {} if "rdzv_id" in flags else {"rdzv_id": f"{fn.__name__}-{_digest([target, facts])}"}
        argv = [*_flags({**names, **flags}), "-m", "elastic_run.launcher.call", target, _digest([facts])]
        environ = dict(os.environ)
        options = parse(argv, environ)
        if names:
            options = dataclasses.replace(options, job_id_given=False)
        written = Command("script", sys.modules[fn.__module__].__file__ or "", (), sys.executable)
        with _own_signal_handlers(), _own_environment():
            workers = worker_settings(options, {**environ, CALL_FILE: str(file)})
            result = asyncio.run(run(options, workers, written=written))
        if result.code != 0:
            raise LaunchFailed(result)
        ranks = sorted(exit_.rank for exit_ in result.exits)
        silent = [rank for rank in ranks if not (folder / f"result-{rank}.json").is_file()]
        if silent:
            raise LaunchFailed(
                result, f"{target} did not return on rank {silent[0]}: its worker exited with code 0 before that"
            )
        return {rank: json.loads((folder / f"result-{rank}.json").read_bytes()) for rank in ranks}


@contextlib.contextmanager
def call_folder() -> Generator[Path]:
    """A temporary folder for a call and its results; what calls that were killed left long ago goes."""
    leftovers.prune(Path(tempfile.gettempdir()), CALL_PREFIX, time.time())
    folder = Path(tempfile.mkdtemp(prefix=CALL_PREFIX))
    held = leftovers.hold(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)


@contextlib.contextmanager
def _own_signal_handlers() -> Generator[None]:
    """The event loop resets every signal that it has handled to its default: puts back what the caller had."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: it was not installed from Python, and could not be put back.
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # `run` has blocked those that it heeds


@contextlib.contextmanager
def _own_environment() -> Generator[None]:
    """Takes the secrets out of the environment, so that nothing that is started inherits them.

    Afterwards these variables, and what the launcher has set for itself, are as the caller had them.
    """
    before = {name: os.environ.get(name) for name in (*SECRETS, GRPC_VERBOSITY)}
    try:
        for name in SECRETS:
            os.environ.pop(name, None)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class elastic_launch:
    """As `torch.distributed.launcher.api.elastic_launch`: `elastic_launch(config, function)(*args)`.

    Args:
        config: torch's `LaunchConfig`, or anything with its attributes.
        entrypoint: the function; as for `elastic_run.launch`.

    Raises:
        elastic_run.exceptions.UsageError: the config asks for what cannot be done here.
    """

    def __init__(self, config: Any, entrypoint: Callable[..., Any]) -> None:  # Any: torch's class is not imported
        self._flags: dict[str, Any] = _flags_of(config)
        self._entrypoint = entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        """Runs the function in every worker; see `elastic_run.launch`.

        Raises:
            elastic_run.exceptions.UsageError: the function or an argument cannot be used; nothing was started.
            elastic_run.exceptions.LaunchFailed: the job failed, was refused, or was told to leave.
        """
        return launch(self._entrypoint, args, **self._flags)


def name_of(fn: Callable[..., Any]) -> str:
    """How another process finds `fn`. Raises UsageError for what has no name there."""
    if not isinstance(fn, FunctionType | type):
        raise UsageError(
            f"launch takes a function, and {fn!r} is not one (workers cannot import a method or a partial by its name)"
        )
    name = fn.__qualname__
    if "<lambda>" in name:
        raise UsageError("launch cannot take a lambda: a worker cannot import it by name; use def")
    if "<locals>" in name:
        raise UsageError(f"{name} is defined inside a function, and workers cannot import it: move it to the top level")
    if fn.__module__ != "__main__":
        return f"{fn.__module__}:{name}"
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return f"{spec.name}:{name}"
    file = getattr(main, "__file__", None)
    if not file or not Path(file).is_file():
        raise UsageError(
            f"{name} is defined in an interactive session or a notebook, and workers cannot import it: "
            "put it into a module"
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
    """The flags that say the same as a `LaunchConfig`. What has no flag is warned of."""

    def given(name: str) -> Any:  # Any: whatever torch's class holds
        return getattr(config, name, None) or None

    flags: dict[str, Any] = {
        "nnodes": f"{config.min_nodes}:{config.max_nodes}",
        "nproc_per_node": config.nproc_per_node,
        "max_restarts": config.max_restarts,
        "rdzv_id": given("run_id"),
        "monitor_interval": None if given("monitor_interval") == MONITOR_INTERVAL else given("monitor_interval"),
        "event_log_handler": None if given("event_log_handler") == "null" else given("event_log_handler"),
        "role": None if given("role") == "default_role" else given("role"),
        "shutdown_timeout": getattr(config, "shutdown_timeout", None),  # 0 is a number of seconds, too
        **{name: given(name) for name in SAME_NAME},
    }
    conf: Mapping[str, Any] = given("rdzv_configs") or {}
    flags["rdzv_conf"] = ",".join(f"{key}={value}" for key, value in conf.items()) or None
    for name in ("duplicate_stdout_filters", "duplicate_stderr_filters"):
        flags[name] = ",".join(word.replace(",", ",,") for word in given(name) or ()) or None
    if numa := given("numa_options"):
        flags["numa_binding"] = getattr(numa.affinity_mode, "value", numa.affinity_mode)
    if given("metrics_cfg"):
        warnings.warn("metrics_cfg has no effect: the launcher imports no framework", RuntimeWarning, stacklevel=3)
    return {name: value for name, value in {**flags, **_logs_of(config)}.items() if value is not None}


MONITOR_INTERVAL = 0.1
"""Seconds; torch's default, which nobody needs to hear of."""

SAME_NAME = (
    "rdzv_endpoint",
    "rdzv_backend",
    "local_addr",
    "start_method",
    "log_line_prefix_template",
    "signals_to_handle",
    "virtual_local_rank",
)
"""Attributes of a `LaunchConfig` that say what the flag of that name says."""


def _logs_of(config: Any) -> dict[str, Any]:  # Any: torch's class is not imported
    """Where the logs go: attributes of the config up to torch 2.2, since then those of its `logs_specs`."""
    specs = getattr(config, "logs_specs", None)
    attributes = {"log_dir": "_root_log_dir"} | {
        name: f"_{name}" for name in ("redirects", "tee", "local_ranks_filter")
    }
    if specs is not None and type(specs).__name__ != "DefaultLogsSpecs":
        raise UsageError(
            f"logs_specs={type(specs).__name__} is not supported: the plug-in is a class of torch, and the launcher "
            "imports no framework. Use torch's DefaultLogsSpecs"
        )
    found = {
        name: getattr(config, name, None) if specs is None else getattr(specs, private, None)
        for name, private in attributes.items()
    }
    folder = found["log_dir"]
    # Torch makes a folder for temporary files where the user names none.
    unnamed = folder and Path(folder).parent == Path(tempfile.gettempdir()) and Path(folder).name.startswith(UNNAMED)
    ranks = found["local_ranks_filter"]
    return {
        "log_dir": None if unnamed else folder or None,
        "redirects": _streams(found["redirects"]),
        "tee": _streams(found["tee"]),
        "local_ranks_filter": ",".join(map(str, sorted(ranks))) if ranks else None,
    }


UNNAMED = "torchelastic_"


def _streams(wanted: Any) -> str | None:  # Any: torch's Std, or a dictionary of it by local rank
    if not wanted:
        return None
    if isinstance(wanted, Mapping):
        return ",".join(f"{rank}:{int(std)}" for rank, std in cast("Mapping[int, int]", wanted).items())
    return str(int(wanted))
