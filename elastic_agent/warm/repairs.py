"""Modules that note something of their process when they are imported: how to note it anew in a worker.

Each function gets the module and makes it as if it had been imported just now. Python's own `random` is not among
them: it draws a new seed after each fork by itself. One is of another kind: `_torch_distributed`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def _logging(module: Any) -> None:
    import time

    module._startTime = time.time_ns() if isinstance(module._startTime, int) else time.time()


def _multiprocessing(module: Any) -> None:
    import os

    # With a common key, the children of one worker could pass for those of another.
    module.current_process()._config["authkey"] = module.AuthenticationString(os.urandom(32))


def _psutil(module: Any) -> None:
    import threading

    # Against these the first `cpu_percent` compares.
    me, all_cores, each_core = threading.get_ident(), module.cpu_times(), module.cpu_times(percpu=True)
    for name in ("_last_cpu_times", "_last_cpu_times_2"):
        vars(module)[name] = {me: all_cores}
    for name in ("_last_per_cpu_times", "_last_per_cpu_times_2"):
        vars(module)[name] = {me: each_core}


def _rich_style(module: Any) -> None:
    # Draws as its import would, so that a generator that the script has seeded continues as it would.
    if hasattr(module, "_id_generator"):
        module._id_generator = module.count(module.getrandbits(24))


def _lightning_rank(module: Any) -> None:
    module.rank_zero_only.rank = module._get_rank() or 0


def _torchmetrics_rank(module: Any) -> None:
    module.rank_zero_only.rank = int(module.os.environ.get("LOCAL_RANK", 0))


def _sympy_symbol(module: Any) -> None:
    dummy: Any = getattr(module, "Dummy", None)
    _seeds("_prng")(dummy)
    if hasattr(dummy, "_base_dummy_index"):
        dummy._base_dummy_index = dummy._prng.randint(10**6, 9 * 10**6)


def _seeds(*names: str) -> Callable[[Any], None]:
    """Seeds these generators anew; another version may have no such one."""

    def repair(owner: Any) -> None:
        for name in names:
            if generator := getattr(owner, name, None):
                generator.seed()

    return repair


def _transformers_hub(module: Any) -> None:
    module.SESSION_ID = module.uuid4().hex


def _torch_contract(module: Any) -> None:
    if hasattr(module, "generate_state_key"):
        module.STATE_KEY = module.generate_state_key()
        module.REGISTRY_KEY = module.generate_state_key()


GLOO_SECONDS, BUSY_GLOO_SECONDS = 0.02, 5.0
"""For a thread of gloo to get Python's lock, which it waits for since before; at most, where it gets no processor."""


def _settle_gloo() -> None:
    """Lets gloo's threads let go of the last step's tensors, for which they need Python's lock.

    Where they come too late, Python's end meets them on their way, and C++ aborts the process.
    """
    import contextlib
    import os
    import time

    def busy(thread: str) -> bool:
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/stat", "rb") as file:
            return b"(pt_gloo_runloop)" in (line := file.read()) and b") S " not in line
        return False

    time.sleep(GLOO_SECONDS)
    until, idle = time.monotonic() + BUSY_GLOO_SECONDS, 0
    with contextlib.suppress(OSError):  # no /proc
        while idle < 2 and time.monotonic() < until:  # twice: one may be about to ask for the lock, which is taken here
            idle = 0 if any(map(busy, os.listdir("/proc/self/task"))) else idle + 1
            time.sleep(GLOO_SECONDS / 10)


def settle_process_groups(modules: Mapping[str, Any]) -> None:
    """Those that the script leaves to the end of the process are ended by Python, whoever has imported torch."""
    if getattr(modules.get("torch.distributed"), "is_initialized", bool)():
        _settle_gloo()


def _torch_distributed(module: Any) -> None:
    import functools
    import sys

    # torch deadlocks where the last to let go of a group (say, a DDP model) ends it while it holds Python's lock, and
    # gloo's thread has not had that lock since the last step. A script that has imported everything ahead comes there
    # within the 5 ms after which a thread has to give the lock away: of twenty small jobs three hung.
    if (own := getattr(module, "destroy_process_group", None)) is None:
        return  # a torch that was built without it

    @functools.wraps(own)
    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        _settle_gloo()
        return own(*args, **kwargs)

    for owner in filter(None, (module, sys.modules.get("torch.distributed.distributed_c10d"))):
        owner.destroy_process_group = destroy_process_group  # type: ignore[attr-defined]


def _threading(module: Any) -> None:
    main = module.main_thread()
    if hasattr(main, "_set_native_id"):
        main._set_native_id()


REPAIRS: Mapping[str, Callable[[Any], None]] = {
    "datasets.fingerprint": _seeds("fingerprint_rng"),
    "lightning.fabric.utilities.rank_zero": _lightning_rank,
    "lightning_fabric.utilities.rank_zero": _lightning_rank,
    "logging": _logging,
    "multiprocess.process": _multiprocessing,
    "multiprocessing.process": _multiprocessing,
    "numpy.random.mtrand": lambda module: module.seed(),
    "psutil": _psutil,
    "rich.style": _rich_style,
    "sympy.core.random": _seeds("rng", "_assumptions_rng"),
    "sympy.core.symbol": _sympy_symbol,
    "threading": _threading,
    "transformers.utils.hub": _transformers_hub,
    "torch": _seeds("default_generator"),
    "torch.distributed._composable.contract": _torch_contract,
    "torch.distributed": _torch_distributed,
    "torchmetrics.utilities.prints": _torchmetrics_rank,
}


def _torch_config(module: Any) -> None:
    # Its values were worked out from the environment and then moved into one table. A second run of the same source
    # makes the table that an import at this moment would have made.
    import importlib.util
    import sys

    name = module.__name__
    del sys.modules[name]
    try:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return
        fresh = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(fresh)
        table = vars(sys.modules[name]).get("_config")
    finally:
        sys.modules[name] = module
    if table is not None:
        vars(module)["_config"] = table


REREADS: Mapping[str, Callable[[Any], None]] = {
    "torch._dynamo.config": _torch_config,
    "torch._functorch.config": _torch_config,
    "torch._inductor.config": _torch_config,
}
"""Modules that read the environment, which the script may have changed between its start and their import."""
