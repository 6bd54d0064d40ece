"""Every command and every block of Python on the pages is run here, or named with the reason why it cannot be.

A command of `elastic-run` is given to the program with `--dry-run`, which takes the same way to the point where the
first process would start. A block of Python is part of a script that is started as a user would start it: what comes
before it on the user's side (a model, a dataset) is given here.
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import textwrap
import threading
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import elastic_run

ROOT = Path(__file__).parents[2]
PACKAGE = Path(next(iter(elastic_run.__path__)))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?:    .*\n|\n(?=    ))+")

PROGRAM = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["elastic-job"]
JOB = "from {} import {}; {}()".format(*PROGRAM.split(":"), PROGRAM.partition(":")[2])
"""The program `elastic-job`."""

DEADLINE = 180.0
"""Seconds for one block or command."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced or indented block: the page's name, the language of a fence, the text without its indentation."""

    page: str
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}: {self.text.strip().splitlines()[0].strip()}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in FENCE.finditer(text):
            yield Block(page.stem, found[1], found[2])
        for found in INDENTED.finditer(FENCE.sub("", text)):
            yield Block(page.stem, "", textwrap.dedent(found[0]))


# -- commands ---------------------------------------------------------------------------------------------------------

PROGRAMS = (
    "elastic-run",
    "elastic-job",
    "python",
    "make",
    "pip",
    "kubectl",
    "etcdctl",
    "torchrun",
    "horovodrun",
    "kill",
)

NOT_RUN = {
    r"elastic-run .*--framework=horovod": "Horovod is built for the tests of test_horovod.py, which run this",
    r"elastic-run --framework=jax \.\.\.": "the rest of the command is left out",
    r"elastic-run (doctor|status|exporter) .*host1": "another machine: test_doctor.py, test_status_command.py",
    r"elastic-run (credentials .*node1|(status|exporter) --credentials)": "a secret; tests/security/test_observer.py",
    r"elastic-run report ": "the events of a job; test_report.py makes pages of some",
    r"elastic-run --join-file=": "another machine; tests/security/test_secrets.py has a secret",
    r"elastic-run master ": "another machine; test_master_process.py",
    r"elastic-run .*--etcd-cacert": "an etcd with TLS and users; tests/security/test_store_users.py starts one",
    r"kubectl ": "a cluster; tests/cluster/ has a control plane",
    r"etcdctl ": "an etcd with users; tests/security/test_store_users.py gives these roles",
    r"torchrun ": "the launcher of torch, for comparison; test_torchrun_backend.py runs ours under it",
    r"horovodrun ": "the launcher of Horovod, for comparison",
    r"pip install": "the tests install nothing; test_package.py installs the wheel in an environment of its own",
    r"kill ": "AGENT_PID stands for a number",
    r"make ": "CI runs its targets; the test below looks for each",
    r"python (-m benchmarks|-m tests|examples/conv|tests/integration/test_imp)": "it may take minutes; see below",
}
"""Commands that are not run here, and why: several machines, a cluster, a server, or much time."""


def commands() -> list[tuple[str, str]]:
    """(page, command) of each line that begins with a program, its continuations joined and its comment removed."""
    found: list[tuple[str, str]] = []
    for block in blocks():
        if block.language not in ("", "console", "sh"):
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            words = re.sub(r"^\$ |^(srun \S+ |[A-Z_]+=\S+ )+", "", line.partition(" #")[0]).strip()
            words = re.sub(r"\s*\|\|$", "", words)
            if words.split(" ")[0] in PROGRAMS:
                found.append((block.page, re.sub(r"\s+", " ", words)))
    return list(dict.fromkeys(found))


def reason(command: str) -> str:
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, command)), "")


def test_every_reason_is_still_that_of_a_command() -> None:
    every = [command for _, command in commands()]
    assert len(every) > 40
    assert [pattern for pattern in NOT_RUN if not any(re.match(pattern, command) for command in every)] == []


def test_each_command_of_another_program_has_a_reason() -> None:
    ours = ("elastic-run ", "elastic-job ")
    assert [command for _, command in commands() if not command.startswith(ours) and not reason(command)] == []


def test_every_test_that_a_reason_names_exists() -> None:
    reasons = " ".join([*NOT_RUN.values(), *(how for how in PYTHON.values() if isinstance(how, str))])
    names = set(re.findall(r"\b(?:tests/[\w/]+\.py|tests/\w+/|test_\w+\.py|examples/\w+\.py)", reasons))
    assert len(names) > 8
    assert [name for name in sorted(names) if "/" in name and not (ROOT / name).exists()] == []
    assert [name for name in sorted(names) if "/" not in name and not [*(ROOT / "tests").rglob(name)]] == []


@pytest.mark.parametrize(
    "command", [command for _, command in commands() if command.startswith("elastic-") and not reason(command)]
)
def test_a_command_is_understood(command: str, tmp_path: Path) -> None:
    words = shlex.split(command)[1:]
    for script in re.findall(r"[\w/.-]+\.py", command):
        (tmp_path / script).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / script).write_text("import time\n", encoding="utf-8")
    if command.startswith("elastic-job "):  # it prints the objects
        where = words.index("--")
        program, words = ["-c", JOB], [*words[:where], "--dry-run", *words[where:]]
    else:
        program, words = ["-m", "elastic_run"], ["--dry-run", *words]
    ran = start([sys.executable, *program, *words], tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert "rank 0" in ran.stdout or "kind: Job" in ran.stdout


def test_every_target_of_make_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {word for _, command in commands() if command.startswith("make ") for word in command.split()[1:]}
    named = {word for word in targets if re.fullmatch(r"[a-z][a-z-]*", word)}
    assert len(named) > 8
    assert [name for name in sorted(named) if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def test_every_module_and_script_that_python_is_given_exists() -> None:
    for _, command in commands():
        words = command.split()
        if words[0] == "python":
            target = words[2].replace(".", "/") if words[1] == "-m" else words[1]
            file = ROOT / target
            assert file.is_file() or file.with_suffix(".py").is_file() or (file / "__main__.py").is_file(), command


# -- blocks of Python -------------------------------------------------------------------------------------------------

TORCH = """\
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import elastic_run
import elastic_run.data
import elastic_run.torch

torch.manual_seed(0)
dataset = TensorDataset(torch.randn(640, 8), torch.randn(640, 1))
checkpoint = Path("run.pt")


def load(indices):
    return dataset[indices]


def mean_loss(batch):
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def ranks():
    global rank, model, optimizer
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


"""

STEPS_TOGETHER = """\
ranks()
criterion = nn.functional.mse_loss
data = elastic_run.data.shards("train", len(dataset), shard_size=64, epochs=2)


def batches():
    for shard in data:
        for start in range(0, len(shard), 32):
            yield shard, shard.indices[start : start + 32], start


own = batches()


def advance():
    global shard, indices, start
    shard, indices, start = next(own, (None, [], 0))
    records = torch.tensor(float(len(indices)))
    dist.all_reduce(records)
    if not records:
        return False
    inputs, labels = load(indices or [0])
    (criterion(model(inputs), labels) * len(indices)).backward()
    return True


"""

IN_PLACE = """\
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
"""

DONE = 'print("the block has run", flush=True)\n'


@dataclass(frozen=True, slots=True)
class Run:
    """How a block is run.

    Attributes:
        before, after: what surrounds it in the script.
        flags: of `elastic-run`; empty: the script is started without a launcher.
        instead: what the block says for a large job, and what it says here.
        indent: in spaces, for the body of a function.
    """

    before: str = ""
    after: str = ""
    flags: tuple[str, ...] = ("--nproc-per-node=2",)
    instead: Mapping[str, str] = field(default_factory=dict[str, str])
    indent: int = 0


ALONE: tuple[str, ...] = ()

PYTHON: Mapping[str, Run | str] = {
    "README: import os, signal, time": "test_readme.py runs it, and compares what it prints",
    "adapters: class Murmur(Plain):": Run(
        "from elastic_run.adapters.contract import Round, Service, Worker\n"
        "from elastic_run.adapters.plain import Plain\n\n\n",
        "round, worker = Round('job', 1, 2, 1, 'host', 23456), Worker(1, 1, 2)\n"
        "assert Murmur().environment(round, worker, {}) == {'MURMUR_PORT': '23456', 'MURMUR_ID': '1'}\n"
        "assert [service.name for service in Murmur().services(round)] == ['coordinator']\n",
        flags=ALONE,
    ),
    "api: import elastic_run": Run(
        after="    assert results == {0: None, 1: None}\n",
        flags=ALONE,
        instead={'nnodes="2:4"': 'nnodes="1"', "-> float: ...": "-> None: ..."},
    ),
    'batch-inference: with elastic_run.data.shards("pictures", count, shard_size=50, shuffle=False, commit="ack") as '
    "shards:": Run(
        "import json, os\nfrom pathlib import Path\nimport elastic_run, elastic_run.data\n"
        "count, out = 400, Path('.')\n\n\ndef predict(indices):\n    return [0 for _ in indices]\n\n\n",
        "assert len(list(out.glob('*.json'))) == 8\n",
    ),
    "checkpoint: import os": Run(after="assert step == STEPS and CHECKPOINT.exists()\n"),
    "data: drawn = 0": Run(
        TORCH + "ranks()\nfrom elastic_run.torch import ElasticBatchSampler\n"
        "sampler = ElasticBatchSampler(len(dataset), 8, accumulate=4)\n"
        "loader = DataLoader(dataset, batch_sampler=sampler)\n",
        "assert sampler.step == 10\ndist.destroy_process_group()\n",
    ),
    'data: data = elastic_run.data.shards("train", 1_000_000, shard_size=1000, epochs=3)': Run(
        "import elastic_run, elastic_run.data\n", instead={"1_000_000": "100_000"}
    ),
    'data: data = elastic_run.data.shards("train", len(dataset), shard_size=1024, epochs=10)': Run(
        TORCH + "ranks()\ncriterion, new = nn.functional.mse_loss, Path(f'new.{rank}')\n",
        "assert step >= 100 and checkpoint.exists()\n",
        instead={"shard_size=1024": "shard_size=64"},
    ),
    'data: checkpoint = elastic_run.torch.Checkpoint("run.pt", every=100, model=model, optimizer=optimizer, '
    "data=data)": Run(
        TORCH + STEPS_TOGETHER,
        "assert rank or Path('run.pt').exists()\ndist.destroy_process_group()\n",
        instead={"while True:": "while advance():"},
    ),
    "data: context = elastic_run.context()": Run(
        "from pathlib import Path\nimport elastic_run, elastic_run.data\n"
        "files, out = [('a.csv', 25_000), ('b.csv', 7_000)], Path('.')\n\n\n"
        "def predictions(file, indices):\n    return f'{file} {len(indices)}'\n\n\n"
        "def write(path, text):\n    path.write_text(text)\n\n\n",
        "assert len(list(out.glob('*.jsonl'))) == 4\n",
    ),
    "data: while True:": Run(
        "from concurrent.futures import ThreadPoolExecutor, wait\nimport elastic_run, elastic_run.data\n"
        "from elastic_run.exceptions import ShardsNotDone\n"
        "data = elastic_run.data.shards('export', 100, shard_size=10, commit='ack')\n"
        "futures = []\n\n\n"
        "class writers:\n    pool = ThreadPoolExecutor(2)\n\n    @classmethod\n    def submit(cls, *call):\n"
        "        futures.append(cls.pool.submit(*call))\n\n\n"
        "def write_and_done(shard):\n    shard.done()\n\n\n"
        "def wait_for_all_writers():\n    wait(futures)\n\n\n",
    ),
    "data: from elastic_run.torch import ElasticIterableDataset": Run(
        TORCH + "import contextlib\nranks()\n\n\n@contextlib.contextmanager\ndef open_table(file):\n"
        "    yield torch.zeros(3000, 8)\n\n\n",
        "assert step > 40\ndist.destroy_process_group()\n",
        instead={"25_000": "2_500", "7_000": "700", "num_workers=4": "num_workers=1"},
    ),
    'gpus: local = int(os.environ["LOCAL_RANK"])': "a GPU; tests/gpu/scripts/ddp.py does this",
    "in-place: from elastic_run import torch as elastic": Run(
        TORCH + IN_PLACE,
        "assert state.step == 100\n",
        instead={"...  ": "nn.functional.mse_loss(model(batch[0]), batch[1]).backward()  "},
    ),
    "in-place: while state.evaluated < epochs:                 # State(..., evaluated=0, best=0.0)": Run(
        TORCH + IN_PLACE + "from elastic_run import torch as elastic\nepochs = 2\n"
        "sampler = elastic.ElasticBatchSampler(len(dataset), 32, epochs=epochs)\n"
        "state = elastic.State(model=model, optimizer=optimizer, data=sampler, evaluated=0, best=0.0)\n\n\n"
        "def evaluate():\n    return 1.0\n\n\n"
        "@elastic.run\ndef train(state):\n    sampler = state.data\n"
        "    loader = DataLoader(dataset, batch_sampler=sampler)\n",
        "train(state)\nassert state.evaluated == 2\n",
        indent=4,
    ),
    "in-place: for attempt in state.attempts():": Run(
        TORCH + IN_PLACE + "from elastic_run import torch as elastic\n"
        "sampler = elastic.ElasticBatchSampler(len(dataset), 32)\n"
        "state = elastic.State(model=model, optimizer=optimizer, data=sampler)\n\n\n"
        "def train(state):\n    for batch in DataLoader(dataset, batch_sampler=state.data):\n"
        "        state.commit()\n\n\n",
        "assert state.step == 10\n",
    ),
    "in-place: rounds = elastic_run.rounds()": "its connections are left out; test_own_ring.py runs a whole one",
    "observe: from elastic_run import trace": Run(
        "import torch\nfrom torch import nn\nmodel, step = nn.Linear(2, 2), 3\n"
        "torch.save(model.state_dict(), 'last.pt')\n",
        flags=("--nproc-per-node=1", "--trace=trace.json"),
    ),
    "observe: import json": "tests/unit/rendezvous/test_trace_file.py runs it on two traces",
    'simulator: "etcd_lose_data": "",                                    # schedule.py, VERBS': "simulator's code",
    "simulator: def test_a_worker_is_frozen_for_a_moment(job: Job) -> None:": "a test, which tests/faults/ would run",
    "tensorflow: import elastic_run": Run(
        "import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\nimport numpy\nimport tensorflow as tf\n\n"
        "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n\n\n"
        "def read(records):\n    for index in records.indices:\n        "
        "yield numpy.zeros((28, 28), 'float32'), numpy.int64(index % 10)\n\n\n"
        "def make_model():\n    layers = tf.keras.layers\n"
        "    return tf.keras.Sequential([layers.Flatten(), layers.Dense(10)])\n\n\n",
        flags=("--nproc-per-node=2", "--framework=tensorflow"),
        instead={
            "60_000": "4_096",
            "epochs=3": "epochs=1",
            "compile(...)": "compile('sgd', tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))",
            "/shared/run": "run",
            "every=100": "every=10",
        },
    ),
    "xgboost: import elastic_run, os, xgboost": Run(
        "import numpy\nimport xgboost\nimport elastic_run.xgboost\n\n"
        "random = numpy.random.default_rng(0)\nfeatures, labels = random.random((200, 4)), random.random(200)\n"
        "TREES, parameters = 3, {'max_depth': 2, 'nthread': 1}\n\n\n"
        "class SaveOnRank0(xgboost.callback.TrainingCallback):\n"
        "    def __init__(self, path):\n        super().__init__()\n"
        "        self.path = path\n\n    def after_iteration(self, model, epoch, evals_log):\n"
        "        if here.rank == 0:\n            model.save_model(self.path)\n        return False\n\n\n",
        flags=("--nproc-per-node=2", "--framework=xgboost"),
    ),
    "xgboost: rows = []": Run(
        "import elastic_run, elastic_run.data\nROWS = 50_000\n", flags=("--nproc-per-node=2", "--framework=none")
    ),
}
"""Each block of Python, and how it is run, or why it is not."""


def python_blocks() -> dict[str, Block]:
    first = re.compile(r"(import |from \w+ import |def |class |while .*:|for .* in .*:|with .*:|\w+(, \w+)* = )")
    shell = ("elastic-run", "nnodes")
    return {
        block.name: block
        for block in blocks()
        if block.language == "python"
        or (block.language == "" and first.match(block.text) and not block.text.startswith(shell))
    }


def test_every_block_of_python_is_run_or_has_a_reason() -> None:
    assert set(python_blocks()) == set(PYTHON)


@pytest.mark.parametrize("name", [name for name, how in PYTHON.items() if isinstance(how, Run)])
def test_a_block_of_python_runs(name: str, tmp_path: Path) -> None:
    how, text = PYTHON[name], python_blocks()[name].text
    assert isinstance(how, Run)
    for said, here in how.instead.items():
        assert said in text, f"the block no longer says {said!r}"
        text = text.replace(said, here)
    script = how.before + textwrap.indent(text, " " * how.indent) + "\n" + how.after + DONE
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "elastic_run", "--standalone", "--max-restarts=0", *how.flags, "script.py"]
    ran = start(command if how.flags else [sys.executable, "script.py"], tmp_path)
    assert ran.returncode == 0, f"{ran.stdout}\n{script}"
    assert "the block has run" in ran.stdout


def environment() -> dict[str, str]:
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "SLURM_", "TORCH"))}
    return {**quiet, "PYTHONPATH": str(PACKAGE.parent)}


def start(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def test_the_script_that_checkpoints_safely_saves_when_the_whole_job_is_told_to_leave(tmp_path: Path) -> None:
    text = python_blocks()["checkpoint: import os"].text
    assert '= Path("run.pt"), 40, 10\n' in text
    text = text.replace(
        '= Path("run.pt"), 40, 10\n', '= Path("run.pt"), 10**9, 10**9\n'
    )  # it saves on the signal alone
    (tmp_path / "script.py").write_text(text, encoding="utf-8")
    begun: list[int] = []
    for _ in range(2):
        command = [sys.executable, "-m", "elastic_run", "--standalone", "--nproc-per-node=2", "script.py"]
        job = subprocess.Popen(
            command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        with job, bounded(job):
            assert job.stdout is not None
            line = next((line for line in job.stdout if "rank 0 begins at step" in line), "")
            begun.append(int(line.rpartition(" ")[2]))
            job.terminate()
            rest = job.stdout.read()
        assert job.returncode == 143, rest
    assert begun[0] == 0 < begun[1]


@contextlib.contextmanager
def bounded(job: "subprocess.Popen[str]") -> Iterator[None]:
    """Kills the job when the time is up, which ends its output."""
    timer = threading.Timer(DEADLINE, job.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
