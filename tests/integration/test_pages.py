"""Every command and every block of Python on the pages is run here, or named with the reason why it cannot be.

A command of `elastic-run` is given to the program with `--dry-run`, which takes the same way to the point where the
first process would start. A block of Python is part of a script that is started as a user would start it: what comes
before it on the user's side (a model, a dataset) is given here. One job runs several blocks, one after the other. The
README's transcript is run, and its output compared.
"""

import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import textwrap
import threading
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ..house import pages
from ..house.pages import Block, commands
from ..house.sources import ROOT, text

PROGRAM = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]["scripts"]["elastic-job"]
"""Where the program `elastic-job` begins."""

DEADLINE = 240.0
"""Seconds for one job, or for all commands."""


def environment() -> dict[str, str]:
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "SLURM_", "TORCH"))}
    return {**quiet, "PYTHONPATH": str(ROOT / "src")}


def start(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Runs it to its end, with both outputs in the order in which the lines came."""
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


# -- commands ---------------------------------------------------------------------------------------------------------

NOT_RUN = {
    r"elastic-run .*--framework=horovod": "Horovod is built for the tests of test_horovod.py, which run this",
    r"elastic-run --framework=jax \.\.\.": "the rest of the command is left out",
    r"elastic-run (doctor|status|exporter) .*host1": "another machine: doctor/test_findings.py, test_status_command.py",
    r"elastic-run (credentials .*node1|(status|exporter) --credentials)": "a secret; tests/security/test_observer.py",
    r"elastic-run status$": "a job that runs here; test_status_command.py",
    r"elastic-run report ": "the events of a job; test_report.py makes pages of some",
    r"elastic-run --join-file=": "another machine; tests/security/test_secrets.py has a secret",
    r"(elastic-run (train|evaluate|predict|new)|python model\.py) ": "a model and its data; test_models.py runs all",
    r"elastic-run sql ": "a query and its data; test_features.py runs a program",
    r"elastic-job submit .* -- train ": "a model's file; tests/cluster/test_model_job.py submits one",
    r"elastic-run export ": "a model that was trained; test_features.py exports some",
    r"elastic-run master ": "another machine; test_master_process.py",
    r"elastic-run .*--etcd-cacert": "an etcd with TLS and users; tests/security/test_store_users.py starts one",
    r"kubectl ": "a cluster; tests/cluster/ has a control plane",
    r"etcdctl ": "an etcd with users; tests/security/test_store_users.py gives these roles",
    r"torchrun ": "the launcher of torch, for comparison; test_torchrun_backend.py runs ours under it",
    r"horovodrun ": "the launcher of Horovod, for comparison",
    r"pip install": "the tests install nothing; test_package.py installs the wheel in an environment of its own",
    r"kill ": "AGENT_PID stands for a number",
    r"make ": "CI runs its targets; tests/house/test_pages.py looks for each",
    r"python (-m benchmarks|-m tests|examples/conv|tests/integration/test_imp)": "minutes; as for make",
}
"""Commands that are not run here, and why: several machines, a cluster, a server, or much time."""


RUN_EACH = """
import importlib, json, os, runpy, sys

import elastic_run.launcher.cli
import elastic_run.launcher.cluster.command

for number, (program, *words) in enumerate(json.load(sys.stdin)):
    child = os.fork()
    if not child:
        output = os.open(f"{number}.out", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.argv = [program, *words]
        if program == "elastic-run":
            runpy.run_module("elastic_run", run_name="__main__", alter_sys=True)
        else:
            module, _, function = program.partition(":")
            getattr(importlib.import_module(module), function)()
        sys.exit(0)
    print(number, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Each command is a fork of one interpreter that has imported the launcher, which takes most of the time."""


def reason(command: str) -> str:
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, command)), "")


def test_every_reason_is_still_that_of_a_command() -> None:
    assert len(commands()) > 40
    assert [pattern for pattern in NOT_RUN if not any(re.match(pattern, command) for command in commands())] == []


def test_each_command_of_another_program_has_a_reason() -> None:
    ours = ("elastic-run ", "elastic-job ")
    assert [command for command in commands() if not command.startswith(ours) and not reason(command)] == []


def test_every_test_that_a_reason_names_exists() -> None:
    reasons = " ".join([*NOT_RUN.values(), *(how for how in PYTHON.values() if isinstance(how, str))])
    names = set(re.findall(r"[\w/]*\b(?:test_\w+|scripts/\w+)\.py|tests/\w+/", reasons))
    assert len(names) > 8
    assert [name for name in sorted(names) if not [*ROOT.glob(name), *(ROOT / "tests").rglob(name)]] == []


def test_each_command_is_understood(tmp_path: Path) -> None:
    given: list[list[str]] = []
    shown = [command for command in commands() if command.startswith("elastic-") and not reason(command)]
    assert len(shown) > 15
    for command in shown:
        for script in re.findall(r"[\w/.-]+\.py", command):
            (tmp_path / script).parent.mkdir(parents=True, exist_ok=True)
            example = ROOT / "examples" / script
            (tmp_path / script).write_bytes(example.read_bytes() if example.is_file() else b"import time\n")
        program, *words = shlex.split(command)
        if program == "elastic-job":  # it prints the objects
            where = words.index("--")
            given.append([PROGRAM, *words[:where], "--dry-run", *words[where:]])
        else:
            given.append([program, "--dry-run", *words])
    (tmp_path / "run_each.py").write_text(RUN_EACH, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "run_each.py"],
        input=json.dumps(given),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    codes = [int(line.split()[1]) for line in done.stdout.splitlines()]
    for number, (command, code) in enumerate(zip(shown, codes, strict=True)):
        printed = (tmp_path / f"{number}.out").read_text(encoding="utf-8")
        assert code == 0, f"{command}\n{printed}"
        assert "rank 0" in printed or "kind: Job" in printed, command


# -- the README's transcript ------------------------------------------------------------------------------------------


def normalised(output: str, host: str) -> list[str]:
    """The lines without what differs from run to run: the host's name, the job's digest, times, ports and pids."""
    text = re.sub(rf"(?<![\w-]){re.escape(host)}(?![\w-])", "HOST", output)
    text = re.sub(r"\btrain-[0-9a-f]{8}\b", "train-ID", text)
    text = re.sub(r"\b\d+\.\d+ s\b", "T s", text)
    text = re.sub(r"\b(127\.0\.0\.1|pid)([: ])\d+", r"\1\2N", text)
    return text.strip().splitlines()


def test_the_transcript_of_the_readme_happens_as_it_is_shown(tmp_path: Path) -> None:
    script, transcript = (
        block.text for block in pages.blocks() if block.page == "README" and block.language in ("python", "console")
    )
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    command, _, shown = transcript.partition("\n")
    assert command.startswith("$ elastic-run "), "the transcript begins with its one command"
    assert "\n$ " not in shown, "and has no other"
    words = shlex.split(command.removeprefix("$ elastic-run "))
    ran = start([sys.executable, "-m", "elastic_run", *words], tmp_path)
    host = socket.gethostname().split(".")[0]
    assert normalised(ran.stdout, host) == normalised(shown, "laptop")
    assert ran.returncode == 0


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
    if not dist.is_initialized():  # one process runs several blocks
        dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


"""

STEPS_TOGETHER = """\
ranks()
criterion = nn.functional.mse_loss
data = elastic_run.data.shards("train together", len(dataset), shard_size=64, epochs=2)


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

TWO = ("--nproc-per-node=2", "--max-restarts=0")

JOBS: Mapping[str, tuple[str, ...]] = {
    "plain": (*TWO, "--framework=none"),
    "torch": (*TWO, "--trace=trace.json"),
    "in place": TWO,  # a process runs one training function
    "in place, with evaluations": TWO,
    "in place, with attempts": TWO,
    "tensorflow": (*TWO, "--framework=tensorflow"),
    "keras": (*TWO, "--servers=1"),
    "xgboost": (*TWO, "--framework=xgboost"),
}
"""The jobs that run the blocks, each with its flags."""


@dataclass(frozen=True, slots=True)
class Run:
    """How a block is run.

    Attributes:
        before, after: what surrounds it in the script.
        job: which one runs it, one block after the other; empty: the script is started without a launcher.
        instead: what the block says for a large job, and what it says here.
        indent: in spaces, for the body of a function.
    """

    before: str = ""
    after: str = ""
    job: str = "torch"
    instead: Mapping[str, str] = field(default_factory=dict[str, str])
    indent: int = 0

    def script(self, block: str) -> str:
        """The whole script of a block."""
        for said, here in self.instead.items():
            assert said in block, f"the block no longer says {said!r}"
            block = block.replace(said, here)
        return self.before + textwrap.indent(block, " " * self.indent) + "\n" + self.after


PYTHON: Mapping[str, Run | str] = {
    "README: import os, signal, time": "the test of the transcript runs it, and compares what it prints",
    "adapters: class Murmur(Plain):": Run(
        "from elastic_run.adapters.contract import Round, Service, Worker\n"
        "from elastic_run.adapters.plain import Plain\n\n\n",
        "round, worker = Round('job', 1, 2, 1, 'host', 23456), Worker(1, 1, 2)\n"
        "assert Murmur().environment(round, worker, {}) == {'MURMUR_PORT': '23456', 'MURMUR_ID': '1'}\n"
        "assert [service.name for service in Murmur().services(round)] == ['coordinator']\n",
        job="",
    ),
    "api: import elastic_run": Run(
        after="    assert results == {0: None, 1: None}\n",
        job="",
        instead={'nnodes="2:4"': 'nnodes="1"', "-> float: ...": "-> None: ..."},
    ),
    'batch-inference: with elastic_run.data.shards("pictures", count, shard_size=50, shuffle=False, commit="ack") as '
    "shards:": Run(
        "import json, os\nfrom pathlib import Path\nimport elastic_run, elastic_run.data\n"
        "count, out = 400, Path('.')\n\n\ndef predict(indices):\n    return [0 for _ in indices]\n\n\n",
        "assert len(list(out.glob('*.json'))) == 8\n",
        job="plain",
    ),
    "features: import torch": "test_features.py trains it",
    "features: from served.predict import predict": "test_features.py runs it in the folder of an export",
    "checkpoint: import os": "the test below runs it until it is told to leave, and then to its end",
    "data: drawn = 0": Run(
        TORCH + "ranks()\nfrom elastic_run.torch import ElasticBatchSampler\n"
        "sampler = ElasticBatchSampler(len(dataset), 8, accumulate=4)\n"
        "loader = DataLoader(dataset, batch_sampler=sampler)\n",
        "assert sampler.step == 10\n",
    ),
    'data: data = elastic_run.data.shards("train", 1_000_000, shard_size=1000, epochs=3)': Run(
        "import elastic_run, elastic_run.data\n", job="plain", instead={"1_000_000": "100_000"}
    ),
    'data: checkpoint = elastic_run.torch.Checkpoint("run.pt", every=100, model=model, optimizer=optimizer, '
    "data=data)": Run(
        TORCH + STEPS_TOGETHER,
        "assert rank or Path('run.pt').exists()\n",
        instead={"while True:": "while advance():"},
    ),
    "data: context = elastic_run.context()": Run(
        "from pathlib import Path\nimport elastic_run, elastic_run.data\n"
        "files, out = [('a.csv', 25_000), ('b.csv', 7_000)], Path('.')\n\n\n"
        "def predictions(file, indices):\n    return f'{file} {len(indices)}'\n\n\n"
        "def write(path, text):\n    path.write_text(text)\n\n\n",
        "assert len(list(out.glob('*.jsonl'))) == 4\n",
        job="plain",
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
        job="plain",
    ),
    "data: from elastic_run.torch import ElasticIterableDataset": Run(
        TORCH + "import contextlib\nranks()\n\n\n@contextlib.contextmanager\ndef open_table(file):\n"
        "    yield torch.zeros(3000, 8)\n\n\n",
        "assert step > 40\n",
        instead={
            '"train", [': '"train on tables", [',
            "25_000": "2_500",
            "7_000": "700",
            "num_workers=4": "num_workers=1",
        },
    ),
    'gpus: local = int(os.environ["LOCAL_RANK"])': "a GPU; tests/gpu/scripts/ddp.py does this",
    "in-place: from elastic_run import torch as elastic": Run(
        TORCH + IN_PLACE,
        "assert state.step == 100\n",
        job="in place",
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
        job="in place, with evaluations",
        indent=4,
    ),
    "in-place: for attempt in state.attempts():": Run(
        TORCH + IN_PLACE + "from elastic_run import torch as elastic\n"
        "sampler = elastic.ElasticBatchSampler(len(dataset), 32)\n"
        "state = elastic.State(model=model, optimizer=optimizer, data=sampler)\n\n\n"
        "def train(state):\n    for batch in DataLoader(dataset, batch_sampler=state.data):\n"
        "        state.commit()\n\n\n",
        "assert state.step == 10\n",
        job="in place, with attempts",
    ),
    "models: import csv": "test_models.py runs the page",
    "models: import torch": "test_models.py runs the page",
    "readers: class Warehouse:": Run(
        after="from elastic_run.data import RecordReader\n"
        "made: RecordReader = Warehouse(['w'], {})\n"
        "assert made.read('w', range(made.size('w')))['square'][9] == 81\n",
        job="",
    ),
    "readers: from elastic_run import data": Run(
        "from pathlib import Path\nPath('data').mkdir()\n"
        "lines = [f'{user},{user / 4},title {user}\\n' for user in range(10_000)]\n"
        "for name in ('a', 'b'):\n"
        "    Path('data', name + '.csv').write_text('user,price,title\\n' + ''.join(lines))\n",
        "assert (len(clicks), clicks.columns) == (20_000, {'user': 'int64', 'price': 'float64', 'title': 'str'})\n"
        "assert clicks.read([17, 5, 19_999])['user'].tolist() == [17, 5, 9_999]\n",
        job="",
        instead={"1_000_000": "19_999"},
    ),
    "streams: class Counts:": Run(
        "from elastic_run import data\n",
        after="source: data.StreamSource = Counts()\n"
        "with data.stream('numbers', source, shard_size=300, follow=False, commit='ack') as stream:\n"
        "    for shard in stream:\n"
        "        assert [each.value for each in shard.records] == [offset**2 for offset in shard.indices]\n"
        "        shard.done()\n",
        job="",
    ),
    "streams: from elastic_run import data": Run(
        "from pathlib import Path\n"
        "Path('arriving').mkdir()\nPath('arriving', 'a.jsonl').write_text('{}\\n' * 100_000)\n",
        after="assert shard.stop == 300_000\n",
        job="",
        instead={'commit="ack"': 'commit="ack", follow=False'},
    ),
    """readers: recent = data.query("SELECT user, price FROM 'data/*.csv' WHERE price > 3", folder="rows")""": Run(
        "from pathlib import Path\nfrom elastic_run import data\nPath('data').mkdir(exist_ok=True)\n"
        "Path('data', 'z.csv').write_text('user,price,title\\n1,2.5,a\\n20000,3.5,b\\n')\n",
        "assert 20_000 in recent.read(range(len(recent)))['user']\n",
        job="",
    ),
    "servers: from elastic_run import data, servers": "its model is left out; test_examples.py runs a whole one",
    'servers: user = elastic.Embedding("user", 16, servers.Adagrad(lr=0.05))  # before the first loop': (
        "a part; scripts/servers_step.py is a whole script"
    ),
    "servers: served = elastic.on_servers(model, optimizer)": "a part; test_dense_parameters.py has whole models",
    "servers: import keras": Run(
        "import numpy\n\n\ndef read(indices):\n    ids = numpy.array(indices)\n    return ids % 1000, ids % 2.0\n\n\n",
        job="keras",
        instead={"1_000_000": "8_000"},
    ),
    "in-place: rounds = elastic_run.rounds()": "its connections are left out; test_own_ring.py runs a whole one",
    "observe: from elastic_run import trace": Run(
        "import os\nimport torch\nfrom torch import nn\nmodel, step = nn.Linear(2, 2), 3\n"
        "os.makedirs(os.environ['RANK'])\nos.chdir(os.environ['RANK'])\n"
        "torch.save(model.state_dict(), 'last.pt')\n",
    ),
    # The last one of its job, because it ends the process group.
    'data: data = elastic_run.data.shards("train", len(dataset), shard_size=1024, epochs=10)': Run(
        TORCH + "ranks()\ncriterion, new = nn.functional.mse_loss, Path(f'new.{rank}')\n",
        "assert step >= 100 and checkpoint.exists()\n",
        instead={"shard_size=1024": "shard_size=64"},
    ),
    "observe: import json": "tests/unit/rendezvous/host/test_trace_file.py runs it on two traces",
    'simulator: "etcd_lose_data": "",                                    # schedule.py, VERBS': "simulator's code",
    "tensorflow: import elastic_run": Run(
        "import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\nimport numpy\nimport tensorflow as tf\n\n"
        "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n\n\n"
        "def read(records):\n    for index in records.indices:\n        "
        "yield numpy.zeros((28, 28), 'float32'), numpy.int64(index % 10)\n\n\n"
        "def make_model():\n    layers = tf.keras.layers\n"
        "    return tf.keras.Sequential([layers.Flatten(), layers.Dense(10)])\n\n\n",
        job="tensorflow",
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
        job="xgboost",
    ),
    "xgboost: rows = []": Run("import elastic_run, elastic_run.data\nROWS = 50_000\n", job="plain"),
}
"""Each block of Python, and how it is run, or why it is not."""


def python_blocks() -> dict[str, Block]:
    first = re.compile(r"(import |from \w+ import |def |class |while .*:|for .* in .*:|with .*:|\w+(, \w+)* = )")
    shell = ("elastic-run", "nnodes")
    return {
        block.name: block
        for block in pages.blocks()
        if block.language == "python"
        or (block.language == "" and first.match(block.text) and not block.text.startswith(shell))
    }


def test_every_block_of_python_is_run_or_has_a_reason() -> None:
    assert set(python_blocks()) == set(PYTHON)
    assert {how.job for how in PYTHON.values() if isinstance(how, Run)} == {*JOBS, ""}


def scripts(job: str, folder: Path) -> list[str]:
    """Writes the script of each block of a job; the names of the blocks, in order."""
    names = [name for name, how in PYTHON.items() if isinstance(how, Run) and how.job == job]
    for number, name in enumerate(names):
        how = PYTHON[name]
        assert isinstance(how, Run)
        (folder / f"block_{number}").mkdir()
        (folder / f"block_{number}.py").write_text(how.script(python_blocks()[name].text), encoding="utf-8")
    return names


@pytest.mark.parametrize("job", JOBS)
def test_the_blocks_of_python_run(job: str, tmp_path: Path) -> None:
    names = scripts(job, tmp_path)
    (tmp_path / "blocks.py").write_text(
        "import os\nimport runpy\n\nhome = os.getcwd()\n"
        f"for number in range({len(names)}):\n"
        '    os.chdir(f"{home}/block_{number}")\n'
        '    runpy.run_path(f"{home}/block_{number}.py", run_name="__main__")\n'
        '    print(f"block {number} has run", flush=True)\n',
        encoding="utf-8",
    )
    ran = start([sys.executable, "-m", "elastic_run", "--standalone", *JOBS[job], "blocks.py"], tmp_path)
    assert ran.returncode == 0, f"{ran.stdout}\nof {names}"
    for number, name in enumerate(names):
        assert f"block {number} has run" in ran.stdout, name


def test_the_blocks_of_python_that_need_no_launcher_run(tmp_path: Path) -> None:
    for number, name in enumerate(scripts("", tmp_path)):
        ran = start([sys.executable, f"block_{number}.py"], tmp_path)
        assert ran.returncode == 0, f"{name}\n{ran.stdout}"


def test_the_script_that_checkpoints_safely_saves_when_the_whole_job_is_told_to_leave(tmp_path: Path) -> None:
    text = python_blocks()["checkpoint: import os"].text
    assert '= Path("run.pt"), 40, 10\n' in text and '    step = state["step"]\n' in text
    # It saves on the signal alone; then it makes 40 steps more.
    text = text.replace('= Path("run.pt"), 40, 10\n', '= Path("run.pt"), 10**9, 10**9\n')
    text = text.replace('    step = state["step"]\n', '    step = state["step"]\n    STEPS, EVERY = step + 40, 10\n')
    (tmp_path / "script.py").write_text(text + "assert step == STEPS\n", encoding="utf-8")
    command = [sys.executable, "-m", "elastic_run", "--standalone", "--nproc-per-node=2", "script.py"]
    job = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with job, bounded(job):
        assert job.stdout is not None
        assert any("rank 0 begins at step 0" in line for line in job.stdout)
        job.terminate()
        rest = job.stdout.read()
    assert job.returncode == 143, rest
    assert (tmp_path / "run.pt").exists(), rest
    again = start(command, tmp_path)
    assert again.returncode == 0, again.stdout
    assert re.search(r"rank 0 begins at step [1-9]", again.stdout), again.stdout


@contextlib.contextmanager
def bounded(job: "subprocess.Popen[str]") -> Iterator[None]:
    """Kills the job when the time is up, which ends its output."""
    timer = threading.Timer(DEADLINE, job.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
