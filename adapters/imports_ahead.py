"""Which installed packages a launcher may import before it forks workers, and which it must not (pure data).

A worker that is forked from a warm interpreter gets the modules that were imported there. This is invisible only where
the import gives every worker, in every run, the same result. So a package is imported ahead only if it stands here.
`tests/integration/test_imports_ahead.py` imports each package in a fresh interpreter and shows that the import reads
nothing that differs between ranks or runs (environment, files, time, random state) and leaves nothing that a fork would
share (threads, descriptors, signal handlers, child processes). No framework is imported here.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Late:
    """A module that a package imports later, inside a function, and that takes long to import.

    Attributes:
        module: its full name.
        wanted_by: identifiers; one of them has to occur in the script's own source. Without one of them the script
            does not need the module, and importing it ahead would only cost time and memory.
    """

    module: str
    wanted_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Package:
    """A package that may be imported ahead.

    Attributes:
        name: the top-level name, as `import` says it.
        distribution: the name under which it is installed, normalised (lower case, hyphens).
        tested: the lowest and the highest version with which the test was run, inclusive; "2.13" covers 2.13.x. None
            for a small dependency of others: any version, and only the checks at run time judge it.
        late: what the package imports later, by itself.
    """

    name: str
    distribution: str
    tested: tuple[str, str] | None
    late: tuple[Late, ...] = ()


_TRAINS = (
    "optim",
    "Optimizer",
    "SGD",
    "Adam",
    "AdamW",
    "RMSprop",
    "Adagrad",
    "zero_grad",
    "DistributedDataParallel",
    "DDP",
    "FullyShardedDataParallel",
    "FSDP",
    "fully_shard",
    "Trainer",
    "Accelerator",
    "Fabric",
)
"""What a script on PyTorch names if it makes an optimizer or wraps a model."""

PACKAGES: Mapping[str, Package] = {
    package.name: package
    for package in (
        Package("numpy", "numpy", ("2.4", "2.4")),
        Package(
            "torch",
            "torch",
            ("2.13", "2.13"),
            late=(
                # The first optimizer, the first DDP model and the first call of `torch.compile` import it.
                Late("torch._dynamo", (*_TRAINS, "compile", "checkpoint")),
                # The first `zero_grad`, `step` and `record_function` import it.
                Late("torch.profiler._cupti_monitor", (*_TRAINS, "profiler", "record_function")),
            ),
        ),
        # Dependencies of torch.
        Package("torchgen", "torch", ("2.13", "2.13")),
        Package("functorch", "torch", ("2.13", "2.13")),
        Package("filelock", "filelock", None),
        Package("fsspec", "fsspec", None),
        Package("jinja2", "jinja2", None),
        Package("markupsafe", "markupsafe", None),
        Package("mpmath", "mpmath", None),
        Package("networkx", "networkx", None),
        Package("opt_einsum", "opt-einsum", None),
        Package("optree", "optree", None),
        Package("sympy", "sympy", None),
        Package("tqdm", "tqdm", None),
        Package("typing_extensions", "typing-extensions", None),
    )
}
"""By top-level name."""

NAMELESS: Mapping[str, str] = {
    "__mp_main__": "multiprocessing's second name of the script's own module",
    "_cython_*": "shared types of modules that were compiled with Cython",
    "_remote_module_non_scriptable": "torch.distributed.nn writes this module itself",
    "_sysconfigdata_*": "Python's own configuration; the platform is part of the name",
    "cython_runtime": "made by each module that was compiled with Cython",
}
"""Top-level names under which declared packages register modules that belong to no distribution, and what they are. A
name that ends in `*` stands for all names that begin so."""

REFUSED: Mapping[str, str] = {
    "wandb": "makes temporary files",
}
"""Installed packages that are not imported ahead, by top-level name, and why not."""

STDLIB_REFUSED: Mapping[str, str] = {
    "antigravity": "opens a browser",
    "curses": "prepares the terminal",
    "idlelib": "starts a program with windows",
    "readline": "prepares the terminal",
    "rlcompleter": "prepares the terminal",
    "this": "prints",
    "tkinter": "connects to a display",
    "turtle": "connects to a display",
    "turtledemo": "connects to a display",
}
"""Modules of the standard library that are not imported ahead, by top-level name, and why not."""
