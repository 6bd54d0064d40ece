"""Each package that may be imported ahead is imported here in a fresh interpreter, under watch, in two different ways.

The first interpreter is like one that workers are forked from: it has no variable of a worker, and its output is a
pipe. The second is like a worker of another run: it has a rank, the date is more than a year later, its output is a
terminal. Nothing that a module holds afterwards may differ, and neither may have read anything that differs between
ranks or runs, or have left anything that a fork would share. What is found all the same stands in `HARMLESS` or
`REPAIRED`, with the reason.

What is not seen: values in memory of native code (there only the reading itself is seen: environment, files, time,
random numbers, process id), and system calls that native code makes without the C library.
"""

import contextlib
import fnmatch
import functools
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from elastic_run.adapters.environment import per_worker
from elastic_run.adapters.imports_ahead import (
    DRAWS,
    NAMELESS,
    NAMESPACES,
    PACKAGES,
    READS_RANK,
    REFUSED,
    THREADS,
)
from elastic_run.adapters.registry import adapter

from ..sampling import sample

PER_WORKER = per_worker(adapter("torch"))
HERE = Path(__file__).parent / "imports_ahead"
SECONDS = 300.0
CONFIG = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
READS_FOLDER = ("torch._dynamo.config", "torch._inductor.config")
"""Modules below a late import that note the working directory, which a script may have changed before it."""

OTHER_DATE = 40_000_000
"""Seconds, more than a year: the second interpreter's date is so much later."""


@dataclass(frozen=True, slots=True)
class Case:
    """Statements that are run one after the other in one interpreter.

    Attributes:
        needs: what has to be installed, by top-level name; else the case is skipped.
    """

    name: str
    needs: tuple[str, ...]
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Except:
    """Something that was found and does no harm. All are patterns of `fnmatch`.

    Attributes:
        kind: of the finding.
        what: what was read, drawn, or left.
        who: the module or the library that did it.
    """

    kind: str
    what: str
    who: str
    why: str


CASES = (
    Case("numpy", ("numpy",), ("import numpy", "import numpy.random, numpy.linalg, numpy.lib.format")),
    Case(
        "torch",
        ("torch",),
        (
            "import torch",
            "import torch.nn as nn",
            "import torch.nn.functional as F",
            "from torch.utils.data import DataLoader, Dataset, DistributedSampler, random_split",
            "import torch.distributed as dist",
            "from torch.nn.parallel import DistributedDataParallel",
            "import torch.multiprocessing as mp",
            "import torch.optim as optim",
            "from torch.optim.lr_scheduler import StepLR, CosineAnnealingLR",
            "import torch.backends.cudnn as cudnn",
            "import torch.amp, torch.cuda.amp",
            "import torch.utils.checkpoint",
            "from torch.profiler import profile",
            "import contextlib\nwith contextlib.suppress(ImportError): import torch.profiler._cupti_monitor",
            "import torch._dynamo",
            "from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard",
            "import torch.distributed.checkpoint as dcp",
            "from torch.distributed.device_mesh import init_device_mesh",
            "from torch.distributed.tensor.parallel import parallelize_module",
            "from torch.distributed.optim import ZeroRedundancyOptimizer",
            "from torch.distributed.elastic.multiprocessing.errors import record",
            "from torch.distributed.algorithms.join import Join",
        ),
    ),
    Case("hydra", ("hydra",), ("import hydra", "from omegaconf import DictConfig, OmegaConf")),
    Case("fsspec", ("fsspec",), ("import fsspec", "from fsspec.core import url_to_fs")),
    Case("scipy", ("scipy",), ("import scipy", "import scipy.stats, scipy.sparse, scipy.optimize, scipy.signal")),
    Case(
        "small",
        ("requests", "PIL", "tiktoken", "einops"),
        (
            "import yaml",
            "import regex",
            "import safetensors",
            "import tokenizers",
            "import requests",
            "import packaging.version",
            "import filelock",
            "import psutil",
            "import rich.console",
            "import click",
            "import fire",
            "from absl import app, flags, logging",
            "import einops",
            "import tiktoken",
            "from tqdm.auto import tqdm",
            "from PIL import Image, ImageOps",
            "import huggingface_hub",
            "from huggingface_hub import snapshot_download, hf_hub_download, HfApi",
        ),
    ),
    Case("pyarrow", ("pyarrow",), ("import pyarrow",)),
    Case("boto3", ("boto3",), ("import boto3",)),
    Case("pandas", ("pandas",), ("import pandas as pd",)),
    Case(
        "sklearn",
        ("sklearn",),
        (
            "import sklearn",
            "from sklearn.datasets import load_digits, make_classification",
            "from sklearn.metrics import accuracy_score, f1_score",
            "from sklearn.model_selection import train_test_split",
            "import sklearn.preprocessing, sklearn.linear_model, sklearn.pipeline",
        ),
    ),
    Case("matplotlib", ("matplotlib",), ("import matplotlib", "import matplotlib.pyplot as plt")),
    Case(
        "datasets",
        ("datasets",),
        ("import datasets", "from datasets import Dataset, DatasetDict, load_dataset, load_from_disk"),
    ),
    Case(
        "torchvision", ("torchvision",), ("import torchvision", "from torchvision import datasets, models, transforms")
    ),
    Case("timm", ("timm", "torchvision"), ("import timm", "import timm.data, timm.loss, timm.optim, timm.scheduler")),
    Case(
        "torchmetrics",
        ("torchmetrics",),
        ("import torchmetrics", "from torchmetrics.classification import Accuracy, MulticlassAccuracy"),
    ),
    Case(
        "lightning",
        ("lightning",),
        (
            "import lightning as L",
            "from lightning import Fabric, LightningModule, Trainer, seed_everything",
            "from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint",
            "from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger",
            "from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy",
            "from lightning.pytorch.utilities import rank_zero_only",
            "from lightning.pytorch.cli import LightningCLI",
            "from lightning.pytorch.demos.boring_classes import BoringModel",
        ),
    ),
    Case(
        "pytorch_lightning",
        ("pytorch_lightning",),
        (
            "import pytorch_lightning as pl",
            "from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint",
            "from pytorch_lightning.loggers import TensorBoardLogger",
            "from pytorch_lightning.utilities.rank_zero import rank_zero_info",
            "from lightning_fabric import Fabric",
        ),
    ),
    Case("accelerate", ("accelerate",), ("import accelerate", "from accelerate import Accelerator, DistributedType")),
    Case(
        "transformers",
        ("transformers",),
        (
            "import transformers",
            "from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer",
            "from transformers import GPT2LMHeadModel, get_linear_schedule_with_warmup",
            "from transformers import HfArgumentParser, Trainer, TrainingArguments, default_data_collator, set_seed",
        ),
    ),
)

LARGE = ("lightning", "pytorch_lightning", "torchmetrics", "transformers")
"""Each imports the better part of the others, for half a minute. A run draws two of them."""

CHOSEN = {case.name for case in CASES} - set(LARGE) | set(sample(LARGE, 2, "imports ahead"))

HARMLESS = (
    # -- of Python itself, whichever package asks for it first
    Except("draws", "os.urandom", "*multiprocess*.process", "the key of its connections: REPAIRED"),
    Except("draws", "os.urandom", "*uuid", "for `uuid4`, which is noted as well"),
    Except("draws", "random._urandom", "numpy.random._pickle via random", "the seed of numpy's generator: REPAIRED"),
    Except("draws", "tempfile.gettempdir", "*", "only finds out which folder is for temporary files"),
    Except("random", "getrandom", "*python*", "os.urandom, which is noted as well"),
    Except("time", "time.time*", "*logging", "logging's start: REPAIRED"),
    Except("opens", "/dev/null", "*", "takes nothing and keeps nothing"),
    Except("file", "/dev/null", "*", "takes nothing and keeps nothing"),
    Except("writes", "/dev/null", "*", "takes nothing and keeps nothing"),
    Except("write", "/dev/null", "*", "takes nothing and keeps nothing"),
    Except("writes", f"{tempfile.gettempdir()}/????????", "*tempfile", "tries the folder, and removes the file"),
    Except("write", f"{tempfile.gettempdir()}/????????", "*python*", "tries the folder, and removes the file"),
    Except("calls", f"os.remove ('{tempfile.gettempdir()}/????????'*", "*tempfile", "tries the folder"),
    Except("opens", "<unknown>", "*ast", "the line of a SyntaxWarning about text without a file (3.14)"),
    Except("file", "<unknown>", "*python*", "see above"),
    # -- of the machine, the same for all workers of a node in all runs
    Except("opens", "/proc/cpuinfo", "*", "the machine's"),
    Except("file", "/proc/cpuinfo", "*", "the machine's"),
    Except("file", "/sys/devices/system/*", "*", "the machine's"),
    Except("file", "*/openssl.cnf", "*", "the machine's"),
    Except("opens", "/proc/sys/kernel/random/boot_id", "filelock._identity*", "the machine's"),
    Except("file", "/proc/sys/kernel/random/boot_id", "*", "the machine's"),
    Except("opens", "/usr/share/zoneinfo/*", "*", "the machine's"),
    Except("file", "/usr/share/zoneinfo/*", "*", "the machine's"),
    Except("look", "/usr/share/zoneinfo/*", "*", "the machine's"),
    Except("look", "/etc/*", "*", "the machine's"),
    Except("look", str(Path.home()), "*python*", "the way to its settings, also where no interpreter lies below it"),
    # -- memory of the environment
    Except("memory", "*", "libc.so.6", "the C library looks for a name of its own, such as TZ"),
    # -- numpy
    Except("starts a thread", "*", "libscipy_openblas*", "OpenBLAS ends its threads before a fork"),
    # -- scipy
    Except(
        "draws",
        "random._urandom",
        "scipy.stats._distribution_infrastructure via random",
        "a sample for an example in a docstring",
    ),
    Except("look", "odr", "*python*", "scipy asks for a folder of its build; the working folder is the workers' own"),
    Except("time", "time.*", "numpy.f2py.rules", "the date that f2py writes into a comment of what it makes"),
    # -- libraries in Rust and C: hash tables
    Except("random", "get*", "_safetensors_rust*", "the seed of a table, in no order that anyone sees"),
    Except("random", "get*", "tokenizers.abi3.so", "the seed of a table, in no order that anyone sees"),
    Except("random", "get*", "_tiktoken*", "the seed of a table, in no order that anyone sees"),
    # -- pyarrow: a debugger shows that libcurl draws the seed of its tables from OpenSSL
    Except("random", "get*", "libarrow.so*", "OpenSSL's generator, which seeds itself anew after a fork"),
    Except("pid", "*", "libarrow.so*", "OpenSSL asks whether this is a fork"),
    Except("time", "*", "libarrow.so*", "when OpenSSL's generator was seeded"),
    Except("memory", "*", "libarrow.so*", "mimalloc looks for variables that begin with mimalloc_"),
    Except("starts a thread", "*", "libarrow.so*", "jemalloc's own: see THREADS"),
    # -- transformers, accelerate and psutil
    Except("look", "src", "*python*", "transformers asks whether it runs from its sources"),
    Except("look", "*/accelerate/default_config.*", "*python*", "where `accelerate config` would write"),
    Except("look", "/proc/[0-9]*/*", "*python*", "psutil asks what this kernel has"),
    Except("look", "/sys/devices/system/*", "*python*", "psutil asks what this kernel has"),
    # -- repaired
    Except("draws", "uuid.uuid4", "transformers.utils.hub", "REPAIRED"),
    Except("draws", "random.getrandbits", "rich.style", "REPAIRED"),
    Except("opens", "/proc/stat", "psutil*", "how long the cores have worked: REPAIRED"),
    Except("file", "/proc/stat", "*python*", "how long the cores have worked: REPAIRED"),
    # -- pandas, Lightning
    Except("time", "time.strftime", "pandas._libs.tslibs via *", "calendar and _strptime ask for the names of days"),
    Except("time", "time.localtime", "dateutil.parser._parser", "the year: see SETTINGS"),
    Except("time", "time.strftime", "*.__about__", "the year: see SETTINGS"),
    *(Except("reads", name, module, "REPAIRED") for module, names in READS_RANK.items() for name in names),
    # -- sklearn
    Except("look", "/proc/self", "*python*", "joblib asks what this kernel has"),
    # -- fsspec and matplotlib: settings
    Except("look", f"{Path.home()}/.config/fsspec", "*python*", "SETTINGS"),  # wherever XDG_CONFIG_HOME is
    Except("look", "matplotlibrc", "*python*", "SETTINGS"),
    Except("look", f"{CONFIG}/matplotlib/matplotlibrc", "*python*", "SETTINGS"),
    Except("look", f"{CONFIG}/matplotlib/stylelib", "*python*", "SETTINGS"),
    Except("opens", f"{CACHE}/matplotlib/fontlist-*.json", "matplotlib.font_manager", "SETTINGS"),
    Except("file", f"{CACHE}/matplotlib/fontlist-*.json", "*python*", "SETTINGS"),
    *(
        Except(kind, what, who, "makes its folder where there is none, as each worker does")
        for base in (CONFIG, CACHE)
        for kind, what, who in (
            ("look", base, "*python*"),
            ("look", f"{base}/matplotlib", "*python*"),
            ("write", f"{base}/matplotlib", "*python*"),
            ("calls", f"os.mkdir ('{base}/matplotlib'*", "matplotlib via pathlib"),
        )
    ),
    Except("look", "*/latex", "*python*", "torchmetrics asks whether the machine has it"),
    # -- urllib3
    Except("calls", "socket.*", "urllib3.util.connection*", "asks whether the machine has IPv6"),
    Except("socket", "opens", "_socket*", "asks whether the machine has IPv6"),
    # -- torch
    Except("opens", f"{HERE}/*/lib*", "torch via glob", "looks for libraries of CUDA along the search path"),
    Except("file", f"{HERE}/*/lib*", "*python*", "looks for libraries of CUDA along the search path"),
    Except("look", f"{HERE}/*/lib*", "*python*", "looks for libraries of CUDA along the search path"),
    Except("opens", "[0-9]*", "cuda.pathfinder* via subprocess", "what ldconfig says"),
    Except("starts", "/sbin/ldconfig", "cuda.pathfinder* via subprocess", "asks which libraries the machine has"),
    Except("process", "/sbin/ldconfig", "*python*", "the same, as subprocess of Python 3.13 starts it"),
    Except("time", "*", "libcublas.so*", "keeps nothing of it that anyone sees"),
    Except("time", "*", "libstdc++.so*", "keeps nothing of it that anyone sees"),
    Except("opens", "/proc/self/maps", "torch", "looks whether libraries of CUDA are loaded, and which"),
    Except("file", "/proc/self/maps", "*python*", "looks whether libraries of CUDA are loaded, and which"),
    Except("file", "/dev/urandom", "libc10.so", "the seed of torch's generator: REPAIRED"),
    Except("opens", "*/probe.py", "torch.cuda*", "`inspect` reads the source of the program, for a line in an error"),
    Except("file", "*/probe.py", "*python*", "see above"),
    Except("look", "*/probe.py", "*python*", "see above"),
    Except("look", "*_ops.py", "*python*", "`inspect` looks for the file of a module that torch has made"),
    Except("look", "*_classes.py", "*python*", "`inspect` looks for the file of a module that torch has made"),
    Except("draws", "uuid.uuid4", "torch.distributed._composable.contract", "REPAIRED"),
    Except("calls", "os.mkdir *torchinductor_*", "torch._inductor.*", "one folder for all processes of a user"),
    Except("write", "*/torchinductor_*", "*python*", "one folder for all processes of a user"),
    Except("look", "*/torchinductor_*", "*python*", "one folder for all processes of a user"),
    # -- tqdm and fsspec
    Except("reads", "*", "tqdm.utils", "WALKS: goes through all variables and uses only those of its own prefix"),
    Except("walks", "os.environ", "tqdm.utils", "WALKS"),
    Except("reads", "*", "fsspec.config", "WALKS"),
    Except("walks", "os.environ", "fsspec.config", "WALKS"),
)
"""What is found, and why it does no harm."""

REPAIRED = {
    "logging._startTime": "`_logging` sets it",
    "multiprocessing.process._current_process._config*authkey*": "`_multiprocessing` draws it",
    "threading._active[[]an address[]]._native_id": "`_threading` asks for it",
    "psutil._last_*": "`_psutil` asks for them",
    "rich.style._id_generator": "`_rich_style` draws it",
    "transformers.utils.hub.SESSION_ID": "`_transformers_hub` draws it",
    "torch.distributed._composable.contract.*_KEY": "`_torch_contract` draws them",
    "multiprocess.process._current_process._config*authkey*": "`_multiprocessing` draws it",
    "datasets.fingerprint.fingerprint_rng": "`_datasets_fingerprint` seeds it",
    "lightning_utilities.core.rank_zero.rank_zero_only.__dict__*rank*": "`_lightning_rank` reads it",
    "torchmetrics.utilities.prints.rank_zero_only.__dict__*rank*": "`_torchmetrics_rank` reads it",
    "numpy.random.*": "`_numpy_random` seeds it",
    "torch._C.default_generator": "`_torch` seeds it",
    "sympy.core.random.*rng": "`_sympy_random` seeds them",
    "sympy.core.symbol.Dummy._prng": "`_sympy` seeds it",
    "sympy.*.dummy_index": "below the base, as in a process that imported it first; unique within the process",
    "sympy.core.symbol.Dummy._base_dummy_index": "`_sympy` draws it",
}
"""Values that differ, which a repair in `elastic_agent/warm/repairs.py` makes anew in each worker."""

SETTINGS = {
    "dateutil.parser._parser.DEFAULTPARSER.info._year": "the year",
    "*.__copyright__": "the year",
}
"""Values that differ with what `elastic_agent/warm/package_settings.py` compares before each start."""

SAME_MEANING = {
    "*.__annotate_func__.__closure__*": "a class, by which Python 3.14 makes its annotations when wanted",
    "torch._dynamo.variables.torch_function.banned_attrs[[]*]": "a set in no order",
    "pandas.core.computation.expr.*.unsupported_nodes[[]*]": "a set in no order",
    "filelock._api._FORK_STATE.pid": "by which it knows that it was forked",
    "*._pid": "by which fsspec's file systems know that they were forked",
    "huggingface_hub.hf_file_system.HfFileSystem._[cl]a*": "fsspec empties it in a fork; a worker makes its own",
    "huggingface_hub.*._fs_token*": "the name in this cache",
    "scipy.signal._short_time_fft.ShortTimeFFT._cache_t[[]1]": "memory that nothing was written to yet",
    "*.manager.loggerDict*_cache*": "which levels were asked for; logging empties it when a level changes",
    "joblib._multiprocessing_helpers.name": "of a semaphore that it has removed again",
    "joblib._multiprocessing_helpers._rand._rng*": "tempfile's names; it knows by the process id that it was forked",
    "pyparsing.core._builtin_exprs*._defaultName": "the address of a function, in the name of a parser",
    "numpy.f2py.rules.generationtime": "the date that f2py writes into a comment of what it makes",
    "numpy.f2py.rules.module_rules[[]'modulebody']": "see above",
}
"""Values that differ in each process, where it does not matter which one a worker has."""

if id(object) < 1 << 32:
    SAME_MEANING |= dict.fromkeys(
        (
            "torch._dynamo.trace_rules._*_function_ids.function_*",
            "torch._dynamo.variables.builder.ITERTOOLS_*TYPE_IDS",
            "torch.jit._builtins._builtin_table*",
            "cuda.pathfinder.*.LIBDL._handle",
        ),
        "what `id` answers: no number by which an address is known, where Python has a fixed place, as Debian's has",
    )


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("what native code reads can only be seen with a C compiler: install gcc")
    library = tmp_path_factory.mktemp("witness") / "witness.so"
    plain = ("-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=0", "-Wno-nonnull-compare")
    command = [compiler, "-shared", "-fPIC", "-O1", *plain, "-o", library, HERE / "witness.c", "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return library


@pytest.fixture(scope="module", autouse=True)
def fonts() -> None:
    """The first import of matplotlib by a user looks for the machine's fonts, with a process and a thread that end."""
    if is_installed("matplotlib"):
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", "import matplotlib.font_manager"], check=True, timeout=SECONDS
        )


def probe(witness: Path, *, rank: int | None = None, shift: int = 0, **orders: Any) -> dict[str, Any]:
    """What the probe answers. With a rank, the variables of a worker are set and their memory is guarded."""
    environment = {name: value for name, value in os.environ.items() if name not in PER_WORKER}
    environment |= {"PYTHONHASHSEED": "0", "LD_PRELOAD": str(witness), "WITNESS_SHIFT": str(shift)}
    environment.setdefault("OMP_NUM_THREADS", "1")
    if rank is not None:
        environment |= {name: str(rank) for name in PER_WORKER} | {"CUDA_VISIBLE_DEVICES": ""}
        environment["WITNESS_GUARD"] = ",".join(PER_WORKER)
    with tempfile.TemporaryFile() as log:
        environment["WITNESS_LOG"] = str(log.fileno())
        done = subprocess.run(
            [sys.executable, HERE / "probe.py", json.dumps(orders)],
            env=environment,
            pass_fds=[log.fileno()],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return json.loads(done.stdout)


INSTALLED = tuple(
    {
        sys.prefix,
        sys.base_prefix,
        str(Path(sys.executable).parent),
        *(str(Path(path).resolve()) for path in sysconfig.get_paths().values()),
        "/usr/lib",
        "/lib",
        "/etc/ld.so",
    }
)


SEARCHED = tuple(f"{folder}/" for folder in sys.path if folder.startswith("/"))
"""Where modules are looked for, as of the tests' own."""


def is_of_the_installation(path: str) -> bool:
    """Whether it belongs to Python or its packages, or is a folder on the way there or on the search path."""
    if path.startswith(INSTALLED) or path.startswith(SEARCHED):
        return True
    on_the_way = any(folder == path or folder.startswith(f"{path.rstrip('/')}/") for folder in INSTALLED)
    on_the_way |= any(folder == path or folder.startswith(f"{path.rstrip('/')}/") for folder in (str(HERE), *sys.path))
    return on_the_way or path in ("", ".", tempfile.gettempdir())


def findings(step: dict[str, Any]) -> list[tuple[str, str, str]]:
    """All that one statement did which may differ between ranks or runs, or which a fork would share."""
    found: list[tuple[str, str, str]] = []
    for kind, noted in step["python"].items():
        for what, modules in noted.items():
            if kind == "reads" and what not in PER_WORKER:
                continue
            if kind in ("opens", "writes") and is_of_the_installation(what):
                continue
            if kind in ("at exit", "process", "sets"):
                continue  # the same in each worker; what a module keeps of it is seen in its values
            found += [(kind, what, who) for who in modules]
    for kind, lines in step["native"].items():
        for line in lines:
            what, _, who = line.partition("\t")
            if kind == "getenv" and what not in PER_WORKER:
                continue
            if kind in ("file", "look", "write") and is_of_the_installation(what):
                continue
            if kind in ("time", "pid", "signal") and ("python" in who or who == "libc.so.6"):
                continue  # seen above in Python, or below in the state
            if kind in ("setenv", "signal"):
                continue
            found.append(("starts a thread" if kind == "thread" else kind, what, who))
    for what, (before, after) in step["changed"].items():
        if what == "handlers in C":
            # glibc's own two, which it sets with the first thread.
            mask = ~(3 << 31)
            if [int(number or "0", 16) & mask for number in before] == [int(number, 16) & mask for number in after]:
                continue
        if (what, before, after) == ("logging", None, [30, [], 0]):
            continue
        if what == "numbers" and _drawn_by(step) <= DRAWS.keys():
            continue
        found.append(("changed", f"{what}: {before} -> {after}"[:500], ""))
    if unknown := [name for name in step["threads"][1:] if name not in THREADS]:
        found.append(("threads that stay", ",".join(unknown), ""))
    if step["threads in a fork"] > 1:
        found.append(("threads in a fork", str(step["threads in a fork"]), ""))
    if step["printed"]:
        found.append(("prints", step["printed"], ""))
    if step["error"]:
        found.append(("error", step["error"], ""))
    for module in step["modules"]:
        name = module.partition(".")[0]
        if module in REFUSED:
            found.append(("refused", module, ""))
        if name in PACKAGES or name in sys.stdlib_module_names or module in NAMESPACES:
            continue
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in NAMELESS):
            found.append(("not declared", name, ""))
    return found


def _drawn_by(step: dict[str, Any]) -> set[str]:
    """The packages that drew from the generator that all Python code shares, by top-level name."""
    draws = step["python"].get("draws", {})
    shared = [modules for what, modules in draws.items() if what.startswith("random.") and what != "random._urandom"]
    return {module.partition(".")[0] for modules in shared for module in modules}


def harms(step: dict[str, Any]) -> list[str]:
    """The findings of a statement that no exception covers."""
    return [
        f"{step['statement']}: {kind}: {what} ({who})"
        for kind, what, who in findings(step)
        if not any(
            fnmatch.fnmatchcase(kind, known.kind)
            and fnmatch.fnmatchcase(what, known.what)
            and fnmatch.fnmatchcase(who, known.who)
            for known in HARMLESS
        )
    ]


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """The values that differ and that neither a repair nor a reason covers."""
    known = [*REPAIRED, *SETTINGS, *SAME_MEANING]
    return [
        f"{path}: {one.get(path)} | {other.get(path)}"
        for path in sorted(one.keys() | other.keys())
        if one.get(path) != other.get(path) and not any(fnmatch.fnmatchcase(path, pattern) for pattern in known)
    ]


def is_installed(name: str) -> bool:
    """Without an import of its package."""
    package, _, rest = name.partition(".")
    spec = importlib.util.find_spec(package)
    if spec is None or not rest:
        return spec is not None
    places = [Path(folder, *rest.split(".")) for folder in spec.submodule_search_locations or ()]
    return any(place.is_dir() or place.with_suffix(".py").is_file() for place in places)


IN_NO_EXTRA = {
    "boto3": "botocore wants python-dateutil below 3, and tests/lock.txt has a newer one",
    "torchvision": "its build must fit that of torch, and come from the same index",
    "timm": "it needs torchvision",
}
"""Why `make test` does not install them: "Checking a new release of a package" in CONTRIBUTING says how to run them."""


def needs(*names: str) -> None:
    for name in names:
        if not is_installed(name):
            pytest.skip(f"{name} is not installed" + (f": {IN_NO_EXTRA[name]}" if name in IN_NO_EXTRA else ""))


def both(witness: Path, statements: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    with ThreadPoolExecutor(2) as pool:
        ahead = pool.submit(probe, witness, statements=statements, values=True)
        other = pool.submit(probe, witness, rank=3, shift=OTHER_DATE, statements=statements, values=True, terminal=True)
        return ahead.result(), other.result()


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case.name in CHOSEN], ids=lambda case: case.name)
def test_an_import_is_the_same_in_each_rank_and_run(case: Case, witness: Path) -> None:
    needs(*case.needs)
    ahead, other = both(witness, case.statements)
    found = [harm for run in (ahead, other) for step in run["steps"] for harm in harms(step)]
    assert not found, "\n".join(dict.fromkeys(found))
    assert len(ahead["values"]) > 1000
    unlike = differences(ahead["values"], other["values"])
    assert not unlike, "\n".join(unlike)


MEANWHILE = """
import decimal, locale, logging, os, random, sys, warnings
import numpy, torch
random.seed(3)
numpy.random.seed(3)
torch.manual_seed(3)
torch.set_default_dtype(torch.float64)
torch.set_default_device("meta")
torch.set_grad_enabled(False)
torch.set_num_threads(3)
torch._C._set_deterministic_algorithms(True)
torch.set_float32_matmul_precision("high")
torch.backends.cuda.matmul.allow_tf32 = True
torch.autograd.set_detect_anomaly(True)
torch.nn.Linear(2, 2, device="cpu")
numpy.seterr(all="raise")
decimal.getcontext().prec = 5
logging.basicConfig(level=logging.DEBUG)
logging.getLogger("torch").setLevel(logging.ERROR)
warnings.simplefilter("error")
sys.argv[1:] = ["--learning-rate", "1"]
sys.path.insert(0, os.getcwd())
sys.setrecursionlimit(5000)
os.umask(0o77)
os.chdir("/")
"""
"""What a script may have done between `import torch` and what torch imports late."""

LATE = [late.module for package in PACKAGES.values() for late in package.late]

FIRST = "import torch, torch.utils._device, numpy.random, logging, decimal, locale"


@pytest.fixture(scope="module")
def imported_late(witness: Path) -> Callable[[str], tuple[dict[str, Any], dict[str, Any]]]:
    """What the probe answers of a late import right after torch's own, and after all that a script may have done."""

    @functools.cache
    def answers(module: str) -> tuple[dict[str, Any], dict[str, Any]]:
        needs(module)
        statements = [f"import {module}"]
        with ThreadPoolExecutor(2) as pool:
            ahead = pool.submit(probe, witness, before=FIRST, statements=statements, after=MEANWHILE, values=True)
            late = pool.submit(probe, witness, before=FIRST + MEANWHILE, statements=statements, values=True)
            return ahead.result(), late.result()

    return answers


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.xdist_group("late-imports")
@pytest.mark.parametrize("module", LATE)
def test_a_late_import_does_not_depend_on_what_the_script_did_before_it(
    module: str, imported_late: Callable[[str], tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    early_answer, late_answer = imported_late(module)
    assert not early_answer["steps"][0]["error"] + late_answer["steps"][0]["error"]
    assert early_answer["steps"][0]["modules"] == late_answer["steps"][0]["modules"]
    folders = tuple(f"{name}._config[" for name in READS_FOLDER)
    unlike = differences(early_answer["values"], late_answer["values"])
    unlike = [difference for difference in unlike if not difference.startswith(folders)]
    assert not unlike, "\n".join(unlike)
    for answer in (early_answer, late_answer):
        answer["state"]["files"] = len(answer["state"]["files"])
    left = {
        what: (early_answer["state"][what], after)
        for what, after in late_answer["state"].items()
        if early_answer["state"][what] != after
    }
    assert not left


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.xdist_group("late-imports")
@pytest.mark.parametrize("module", LATE)
def test_a_late_import_reads_the_environment_only_where_python_sees_it(
    module: str, imported_late: Callable[[str], tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    """A script may change a variable before the module is imported. What the import read is compared then, and only
    what Python reads by name is known to have been read."""
    step = imported_late(module)[0]["steps"][0]
    assert "walks" not in step["python"]
    declared = {name for package in PACKAGES.values() for late in package.late for name in late.reads}
    read = {tuple(line.split("\t")) for line in step["native"].get("getenv", [])}
    assert {(name, library) for name, library in read if "python" not in library and name not in declared} == set()
    assert "memory" not in step["native"]


DRAWN = {
    "datasets.fingerprint": "module.fingerprint_rng.getstate()",
    "multiprocess.process": "module.current_process()._config['authkey']",
    "multiprocessing.process": "module.current_process()._config['authkey']",
    "psutil": "[id(times) for times in module._last_cpu_times.values()]",
    "rich.style": "repr(module._id_generator)",
    "sympy.core.random": "(module.rng.getstate(), module._assumptions_rng.getstate())",
    "sympy.core.symbol": "(module.Dummy._prng.getstate(), module.Dummy._base_dummy_index)",
    "torch.distributed._composable.contract": "(module.STATE_KEY, module.REGISTRY_KEY)",
    "transformers.utils.hub": "module.SESSION_ID",
}
"""Modules that have to be imported anew or repaired in each worker, and what they must not share."""


REPAIRING = """
import importlib, json, os, sys, traceback
from elastic_run.elastic_agent.warm.repairs import REPAIRS

def read_again(name, module):
    assert module.rank_zero_only.rank == int(os.environ.get("RANK", "0"))
    os.environ |= {"RANK": "7", "LOCAL_RANK": "7"}
    REPAIRS[name](module)
    assert module.rank_zero_only.rank == 7
    del module.rank_zero_only.rank  # another module may have the same function, and reads anew only what is not there

def drawn_anew(name, module, what):
    held, before = dict(vars(module)), eval(what, {"module": module})
    REPAIRS[name](module)
    assert before != eval(what, {"module": module})

own, wrong = dict(os.environ), {}
for name, what in json.loads(sys.argv[1]).items():
    try:
        module = importlib.import_module(name)
        drawn_anew(name, module, what) if what else read_again(name, module)
    except Exception:
        wrong[name] = traceback.format_exc()
    for changed in ("RANK", "LOCAL_RANK"):
        os.environ.pop(changed, None)
    os.environ |= own
print(json.dumps(wrong))
"""
"""Imports the modules of its argument one after the other, and says of which the repair does not do its work."""


@pytest.fixture(scope="module")
def unrepaired() -> Callable[[str], dict[str, str]]:
    """What is wrong with the repairs in a process of that rank, by module; "" is no worker. All are in one process."""

    @functools.cache
    def answers(rank: str) -> dict[str, str]:
        wanted = {**dict.fromkeys(READS_RANK, ""), **({} if rank else DRAWN)}
        orders = json.dumps({name: what for name, what in wanted.items() if is_installed(name.partition(".")[0])})
        own = {name: value for name, value in os.environ.items() if name not in PER_WORKER}
        if rank:
            own |= {"RANK": rank, "LOCAL_RANK": rank}
        command = [sys.executable, "-W", "ignore", "-c", REPAIRING, orders]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=own, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return answers


@pytest.mark.slow
@pytest.mark.xdist_group("repairs")
@pytest.mark.parametrize("module", READS_RANK)
def test_what_an_import_reads_of_its_worker_is_read_again_in_each(
    module: str, unrepaired: Callable[[str], dict[str, str]]
) -> None:
    needs(module.partition(".")[0])
    for rank in ("", "3"):
        assert module not in unrepaired(rank), unrepaired(rank)[module]


@pytest.mark.xdist_group("repairs")
@pytest.mark.parametrize("module", DRAWN)
def test_what_an_import_draws_is_drawn_anew_in_each_worker(
    module: str, unrepaired: Callable[[str], dict[str, str]]
) -> None:
    needs(module.partition(".")[0])
    assert module not in unrepaired(""), unrepaired("")[module]


def versions() -> list[str]:
    """Of each declared package that is installed: its version, and which the table says were tested."""
    lines: list[str] = []
    for package in PACKAGES.values():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed = importlib.metadata.version(package.distribution)
            tested = " to ".join(dict.fromkeys(package.tested or ("any",)))
            lines.append(f"{package.name:24} {installed:20} declared: {tested}")
    return lines


if __name__ == "__main__":
    print(*versions(), sep="\n")
    command = [sys.executable, "-m", "pytest", __file__, "-rs", f"--rootdir={HERE.parents[2]}", *sys.argv[1:]]
    sys.exit(subprocess.call(command, env={"ELASTIC_RUN_SOAK": "1"} | os.environ))
