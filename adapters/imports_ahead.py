"""Which installed packages a launcher may import before it forks workers, and which it must not (pure data).

A worker that is forked from a warm interpreter gets the modules that were imported there. This is invisible only where
the import gives every worker, in every run, the same result. So a package is imported ahead only if it stands here.
`tests/integration/test_imports_ahead.py` imports each package in a fresh interpreter and shows that the import leaves
nothing that a fork would share (threads, descriptors, signal handlers, child processes), and reads nothing that differs
between ranks or runs (environment, files, time, random state), but for what is made good: each worker reads its rank
and draws its random numbers anew (`READS_RANK` here, `REPAIRS` in `warm/repairs.py`), and files of settings and the
year are compared before each start (`warm/package_settings.py`). `DRAWS` does no harm. No framework is imported here.
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
        reads: the variables that native code reads during the import, which nobody sees at run time.
    """

    module: str
    wanted_by: tuple[str, ...]
    reads: tuple[str, ...] = ()


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

_TRITON_READS = (
    "LLVM_OVERRIDE_PRODUCER",
    "PTXAS_OPTIONS",
    "TRITON_DEBUG",
    "TRITON_ENABLE_PYTHON_STACKTRACE",
    "TRITON_INSTRUMENTATION_MODE",
    "TRITON_INTERPRET",
    "TRITON_PLUGIN_PATHS",
)
"""What the library of triton reads when it is loaded, and torch's wheels for CUDA import triton."""

_SMALL = """
anyio attrs certifi charset_normalizer click cloudpickle cycler dill filelock fontTools h11 httpcore httpcore2 httpx
httpx2 idna jinja2 jmespath joblib kiwisolver lightning_utilities markupsafe mpmath multiprocess narwhals networkx
opt_einsum optree packaging psutil pyparsing pytz regex rich s3transfer six sniffio sympy termcolor threadpoolctl tqdm
truststore typing_extensions urllib3 xxhash
"""
"""Small packages and dependencies of others, whose distribution has the same name: any version will do."""

PACKAGES: Mapping[str, Package] = {
    package.name: package
    for package in (
        Package("numpy", "numpy", ("2.3", "2.5")),
        Package(
            "torch",
            "torch",
            ("2.11", "2.14"),
            late=(
                # The first optimizer, the first DDP model and the first call of `torch.compile` import it.
                Late("torch._dynamo", (*_TRAINS, "compile", "checkpoint"), reads=_TRITON_READS),
                # The first `zero_grad`, `step` and `record_function` import it.
                Late("torch.profiler._cupti_monitor", (*_TRAINS, "profiler", "record_function")),
            ),
        ),
        Package("torchgen", "torch", ("2.11", "2.14")),
        Package("functorch", "torch", ("2.11", "2.14")),
        # This package itself: what a script imports of it loads the framework that it is for, and nothing else.
        Package("elastic_run", "elastic-run", None),
        # Packages that scripts import by themselves.
        Package("accelerate", "accelerate", ("1.14", "1.15")),
        Package("boto3", "boto3", ("1.44", "1.44")),
        Package("datasets", "datasets", ("5.2", "5.2")),
        Package("einops", "einops", ("0.8", "0.8")),
        Package("fire", "fire", ("0.7", "0.7")),
        # What it reads from files is compared before each start (`warm/package_settings.py`), as for matplotlib.
        Package("fsspec", "fsspec", ("2026.2", "2026.9")),
        Package("huggingface_hub", "huggingface-hub", ("2.4", "2.4")),
        Package("hydra", "hydra-core", ("1.3", "1.3")),
        Package("lightning", "lightning", ("2.6", "2.6")),
        Package("lightning_fabric", "pytorch-lightning", ("2.6", "2.6")),
        Package("matplotlib", "matplotlib", ("3.10", "3.11")),
        Package("mpl_toolkits", "matplotlib", ("3.10", "3.11")),
        Package("omegaconf", "omegaconf", ("2.3", "2.3")),
        Package("pandas", "pandas", ("2.3", "3.1")),
        Package("PIL", "pillow", ("13.0", "13.0")),
        # Its allocator has a thread: see THREADS. The numbers that it draws seed OpenSSL, which seeds itself anew after
        # a fork, and the tables of libcurl and mimalloc.
        Package("pyarrow", "pyarrow", ("26.0", "26.0")),
        Package("pytorch_lightning", "pytorch-lightning", ("2.6", "2.6")),
        Package("requests", "requests", ("2.34", "2.34")),
        Package("safetensors", "safetensors", ("0.8", "0.8")),
        Package("scipy", "scipy", ("1.17", "1.18")),
        Package("sklearn", "scikit-learn", ("1.8", "1.9")),
        Package("tiktoken", "tiktoken", ("0.14", "0.14")),
        Package("tiktoken_ext", "tiktoken", ("0.14", "0.14")),
        Package("tokenizers", "tokenizers", ("0.23", "0.23")),
        Package("timm", "timm", ("1.0", "1.0")),
        Package("torchmetrics", "torchmetrics", ("1.9", "1.9")),
        Package("torchvision", "torchvision", ("0.27", "0.29")),
        Package("transformers", "transformers", ("5.23", "5.24")),
        Package("yaml", "pyyaml", ("6.0", "6.0")),
        # Dependencies of these.
        Package("absl", "absl-py", None),
        Package("antlr4", "antlr4-python3-runtime", None),
        Package("attr", "attrs", None),
        Package("botocore", "botocore", ("1.44", "1.44")),
        Package("cuda", "cuda-bindings", None),
        Package("dateutil", "python-dateutil", None),
        Package("_multiprocess", "multiprocess", None),
        Package("triton", "triton", ("3.6", "3.8")),
        Package("_yaml", "pyyaml", ("6.0", "6.0")),
        *(Package(name, name.replace("_", "-").lower(), None) for name in _SMALL.split()),
    )
}
"""By top-level name."""

NAMELESS: Mapping[str, str] = {
    "__mp_main__": "multiprocessing's second name of the script's own module",
    "_cython_*": "shared types of modules that were compiled with Cython",
    "_remote_module_non_scriptable": "torch.distributed.nn writes this module itself",
    "_sysconfigdata_*": "Python's own configuration; the platform is part of the name",
    "_csparsetools": "compiled module of scipy.sparse",
    "_cyutility": "compiled module of a package that was compiled with Cython",
    "_loss": "compiled module of sklearn",
    "_moduleTNC": "compiled module of scipy.optimize",
    "_ni_label": "compiled module of scipy.ndimage",
    "cython_runtime": "made by each module that was compiled with Cython",
}
"""Top-level names under which declared packages register modules that belong to no distribution, and what they are. A
name that ends in `*` stands for all names that begin so."""

NAMESPACES: Mapping[str, str] = {
    "google": "accelerate asks whether it runs in Google's notebooks, and finds the folder of protobuf"
}
"""Packages that are only a folder which several distributions share. They may be loaded; nothing in them may."""

THREADS: Mapping[str, str] = {
    "jemalloc_bg_thd": "jemalloc holds its locks during a fork, and has no such thread in the child"
}
"""Threads that may stay after an import, by the name in /proc/self/task/*/comm, and why a fork does no harm to them."""

WALKS: Mapping[str, str] = {"fsspec.config": "FSSPEC_", "tqdm.utils": "TQDM_"}
"""Modules that go through all environment variables when they are imported, and use only those that begin so."""

_RANKS = ("RANK", "LOCAL_RANK")

READS_RANK: Mapping[str, tuple[str, ...]] = {
    "lightning.fabric.utilities.rank_zero": _RANKS,
    "lightning_fabric.utilities.rank_zero": _RANKS,
    "torchmetrics.utilities.prints": ("LOCAL_RANK",),
}
"""Modules that read these variables of a worker in their own body. Each worker reads them again (`REPAIRS`)."""

DRAWS: Mapping[str, str] = {"rich": "the number at which links in a terminal begin, which each worker draws anew"}
"""Packages whose import draws from the generator that all Python code shares, by top-level name, and why that does no
harm."""

REFUSED: Mapping[str, str] = {
    "jax": "draws random numbers that all workers would share",
    "keras": "reads a configuration file, which may be another one after a restart",
    "opentelemetry": "draws identifiers that all workers would share",
    "sklearn.ensemble._hist_gradient_boosting.splitting": "draws the seed of a generator that no worker can draw again",
    "tensorflow": "prints, and reads a configuration file, which may be another one after a restart",
    "wandb": "makes temporary files",
}
"""Installed packages and modules that are not imported ahead, by name, and why not."""

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
