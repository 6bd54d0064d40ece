"""Jobs that train, evaluate and predict with a model in four functions, with workers that are killed in between."""

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ..house import pages

SECONDS = 240.0
"""For a job, on a busy machine: fresh interpreters, and loops that are compiled for the first time."""

RECORDS = 3000

COUNTING = """
    import os, signal
    import torch
    import elastic_run

    fed = 0

    class Once(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self):
            for group in self.param_groups:
                for each in group["params"]:
                    each.data += (each.grad != 0).float()

    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.counts = torch.nn.Parameter(torch.zeros(3000))

        def forward(self, ids):
            return self.counts[ids]

    def forward():
        return Counts()

    def loss(output, labels):
        return output.mean()

    def optimizer(parameters):
        return Once(parameters)

    def feed(columns):
        global fed
        fed += 1
        here = elastic_run.context()
        if here.round == 1 and fed == 12 and os.environ.get("FAIL"):
            if here.rank == here.world_size - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if os.environ["FAIL"] == "others wait":  # or they might do everything meanwhile
                signal.pause()
        return columns["id"], columns.get("label")

    def metrics(output, labels):
        return {"once": (output == 1).double(), "label": labels.double()}

    if __name__ == "__main__":
        elastic_run.models.main()
"""
"""It counts how often each record is in the model."""

TABLE = (
    COUNTING.replace(
        "torch.nn.Parameter(torch.zeros(3000))",
        'elastic_run.torch.Embedding("counts", 1, elastic_run.servers.SGD(lr=1.0), elastic_run.servers.Zeros())',
    )
    .replace("self.counts[ids]", "self.counts(ids).squeeze(1)")
    .replace("output.mean()", "-output.sum()")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Records with ids, as CSV in two files, and as Parquet."""
    (tmp_path / "data").mkdir()
    for name, ids in (("b.csv", range(1000, RECORDS)), ("a.csv", range(1000))):
        with (tmp_path / "data" / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "text", "label"])
            writer.writerows([number, f'a "text"\nof {number}', number % 7] for number in ids)
    table = pa.table({"id": list(range(RECORDS)), "label": [number % 7 for number in range(RECORDS)]})
    pq.write_table(table, tmp_path / "all.parquet", row_group_size=500)
    (tmp_path / "model.py").write_text(textwrap.dedent(COUNTING))
    return tmp_path


def run(folder: Path, *words: str, fails: str = "") -> tuple[int, str]:
    command = [sys.executable, "-m", "elastic_run", *words]
    environment = {**os.environ, "FAIL": fails}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, env=environment)
    return done.returncode, done.stdout + done.stderr


TRAIN = ("train", "model.py", "--data=data/*.csv", "--batch-size=20", "--shard-size=100", "--save-every=3")

ALL_ONCE = r"evaluated 3,000 records: loss \S+, once 1, label 2\.998"


def test_each_record_is_in_the_model_and_in_its_evaluation_once_after_workers_were_killed(folder: Path) -> None:
    words = (*TRAIN, "--nproc-per-node=2", "--validate=all.parquet", "--max-restarts=2")
    code, said = run(folder, *words, fails="one")
    assert code == 0, said
    assert "died by SIGKILL" in said and re.search(r"model\.pt is there: goes on after step [36912]", said), said
    assert re.search(ALL_ONCE, said), said
    assert "in lockstep: 2 workers add up their gradients of its 3,000 numbers" in said
    words = ("evaluate", "model.py", "--data=data", "--shard-size=100", "--batch-size=20", "--nproc-per-node=2")
    code, said = run(folder, *words, "--max-restarts=2", fails="others wait")
    assert code == 0 and "died by SIGKILL" in said, said
    assert re.search(ALL_ONCE, said), said
    code, said = run(folder, *words)
    assert code == 0 and "evaluated before" in said and re.search(ALL_ONCE, said), said


def test_a_job_that_was_ended_goes_on_where_its_state_ends_with_another_number_of_workers(folder: Path) -> None:
    code, said = run(folder, *TRAIN, "--nproc-per-node=2", "--max-restarts=0", fails="one")
    assert code != 0 and (folder / "model.pt").exists(), said
    code, said = run(folder, *TRAIN, "--nproc-per-node=3", "--validate=data")
    assert code == 0 and "goes on after step" in said, said
    assert re.search(ALL_ONCE, said), said
    code, said = run(folder, *TRAIN)
    assert code == 0 and "model.pt is trained to the end already" in said, said
    (folder / "model.py").write_text(textwrap.dedent(COUNTING).replace("3000", "4000"))
    code, said = run(folder, *TRAIN)
    assert code != 0 and "model.pt is of another model or optimizer than model.py has now: remove it" in said, said


def test_each_record_has_one_output_after_a_worker_was_killed_and_after_the_job_was(folder: Path) -> None:
    assert run(folder, *TRAIN)[0] == 0
    words = ("predict", "model.py", "--data=data", "--output=out", "--shard-size=100", "--batch-size=20")
    code, said = run(folder, *words, "--nproc-per-node=2", "--max-restarts=0", fails="others wait")
    assert code != 0, said
    early = {path: path.stat().st_mtime_ns for path in (folder / "out").glob("*.csv")}
    assert 0 < len(early) < 30
    assert all(len(path.read_text().splitlines()) == 101 for path in early)
    code, said = run(folder, *words, "--nproc-per-node=3", "--max-restarts=2", fails="others wait")
    assert code == 0 and "died by SIGKILL" in said, said
    files = sorted((folder / "out").glob("*.csv"))
    rows = [row for path in files for row in csv.DictReader(path.read_text().splitlines())]
    assert [(row["file"], int(row["record"])) for row in rows] == [
        (f"data/{name}.csv", number) for name, count in (("a", 1000), ("b", 2000)) for number in range(count)
    ]
    assert {row["output"] for row in rows} == {"1"}
    assert len(files) == 30 and early.items() <= {path: path.stat().st_mtime_ns for path in files}.items()
    assert [path.name for path in (folder / "out").iterdir() if path.suffix == ".part"] == []
    code, said = run(folder, *words[:-3], "--output=as-parquet", "--output-format=parquet")
    table = pq.read_table(folder / "as-parquet")
    assert code == 0 and table.num_rows == RECORDS and set(table["output"].to_pylist()) == {1.0}, said
    (folder / "data" / "c.csv").write_text("id,text,label\n1,x,1\n")
    code, said = run(folder, *words)
    assert code == 1 and "--output=out has predictions of another model, state or data: name a new folder" in said


def test_rows_on_servers_have_each_record_once_and_are_read_without_servers_afterwards(folder: Path) -> None:
    saved = 'while os.environ.get("FAIL") and fed == 40 and not list(pathlib.Path("rows").glob("*.json")):'
    model = textwrap.dedent(TABLE).replace("fed += 1\n", f"fed += 1\n    {saved}\n        time.sleep(0.05)\n")
    (folder / "model.py").write_text(f"import pathlib, time\n{model}")
    words = ("--nproc-per-node=2", "--servers=1", "--validate=all.parquet", "--max-restarts=2")
    kept = ("--rdzv-id=rows", "--ps-checkpoint=rows", "--ps-checkpoint-every=1")
    code, said = run(folder, *TRAIN, *words, *kept, fails="one")
    assert code == 0 and "died by SIGKILL" in said, said
    assert "asynchronously: the rows of counts are on servers" in said and re.search(ALL_ONCE, said), said
    code, said = run(folder, "evaluate", "model.py", "--data=data")
    assert code == 0 and re.search(ALL_ONCE, said), said
    shutil.rmtree(folder / "model.pt.evaluations")
    code, said = run(folder, *TRAIN, *words)  # other servers, which know of no row
    assert code == 0 and "trained to the end already" in said and re.search(ALL_ONCE, said), said
    code, said = run(folder, *TRAIN, *words, *kept, "--epochs=2")
    assert code == 0 and re.search(r"evaluated 3,000 records: loss -40, once 0,", said), said


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "model.pt.history.jsonl").read_text().splitlines()]
    return [line for line in lines if "validation" in line]


def test_states_are_evaluated_beside_training_each_once_though_workers_are_lost_there_and_between(folder: Path) -> None:
    model = textwrap.dedent(COUNTING).replace(
        "here.round == 1 and fed == 12", "(here.round, fed) in ((1, 30), (2, 99))"
    )
    (folder / "model.py").write_text(model)  # a rank has had 25 batches when the first evaluation begins
    words = ("--nproc-per-node=2", "--validate=all.parquet", "--validate-every=1000", "--epochs=2", "--best=loss:max")
    code, said = run(folder, *TRAIN, *words, "--max-restarts=4", fails="one")
    assert code == 0 and said.count("died by SIGKILL") >= 2, said
    found = read_evaluations(folder)
    assert [each["records"] // 1000 for each in found] == [1, 2, 3, 4, 5, 6], said
    for each in found:  # the mean of how often each record is in the model
        assert each["validation"]["loss"] * RECORDS == pytest.approx(each["records"], abs=0.1), said
    assert re.search(rf"{found[-1]['step']} +6,000 +2 .* best\n", said), said
    assert f"model.best.pt has the best model, by loss: after step {found[-1]['step']}" in said, said
    assert any(b"validation/label" in path.read_bytes() for path in (folder / "model.pt.events").iterdir())


def test_training_stops_early_and_the_best_state_is_evaluated_with_its_own_rows(folder: Path) -> None:
    (folder / "model.py").write_text(textwrap.dedent(TABLE))
    words = ("--nproc-per-node=2", "--servers=1", "--validate=all.parquet", "--validate-every=500", "--max-restarts=2")
    code, said = run(folder, *TRAIN, *words, "--best=label", "--patience=2", fails="one")
    assert code == 0 and "stops: the last 2 evaluations have not bettered label" in said, said
    found = read_evaluations(folder)
    assert [each["records"] // 500 for each in found] == [1, 2, 3], said
    code, said = run(folder, "evaluate", "model.py", "--data=all.parquet", "--state=model.best.pt")
    once = re.findall(r"evaluated 3,000 records: .* once (\S+),", said)
    assert code == 0 and once == [f"{found[0]['validation']['once']:.6g}"], said
    assert float(once[0]) >= found[0]["records"] / RECORDS - 1e-6, said  # rows may have more, after a loss
    shutil.copy(folder / "model.best.pt", folder / "half.pt")
    shutil.copytree(folder / "model.pt.tables", folder / "half.pt.tables")
    code, said = run(folder, "evaluate", "model.py", "--data=all.parquet", "--state=half.pt")
    assert code != 0 and "half.pt.tables has rows of another training or step" in said, said


def test_the_same_file_runs_by_itself_with_its_tables_in_the_process(folder: Path) -> None:
    (folder / "model.py").write_text(textwrap.dedent(TABLE))
    words = [sys.executable, "model.py", *TRAIN[:1], *TRAIN[2:], "--validate=data"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert "in one process, with the rows of counts in it" in done.stdout and re.search(ALL_ONCE, done.stdout)
    more = subprocess.run([*words, "--epochs=2"], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert more.returncode == 2 and "model.pt was trained for 1 of 2 epochs" in more.stderr, more.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("train", "model.py", "--data=none/*.csv"), "--data: no file matches 'none/*.csv'"),
        (("train", "modle.py", "--data=data"), "the model modle.py cannot be read: No such file or directory"),
        (("train", "--data=data"), "no model is named: write elastic-run train model.py"),
        (("train", "model.py"), "the following arguments are required: --data"),
        (("train", "model.py", "--data=data", "--epochs=none"), "'none' is not a whole number from 1"),
        (("train", "model.py", "--data=data", "--nodes=2"), "unknown flag --nodes: did you mean --nnodes?"),
        (("predict", "model.py", "--data=data"), "the following arguments are required: --output"),
        (("evaluate", "model.py", "--data=data"), "there is no file model.pt, which elastic-run train model.py writes"),
        (("new", "deepfn"), "NAME is one of dcn_v2, deepfm, logistic_regression"),
    ],
)
def test_what_cannot_be_is_told_before_anything_starts(folder: Path, words: tuple[str, ...], told: str) -> None:
    code, said = run(folder, *words)
    assert code == 2 and told in said and "Traceback" not in said and "round 1" not in said, said


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("import torch\n", "import torch, no_such_module\n", "model.py cannot be loaded: ModuleNotFoundError"),
        ("output.mean()", "output", "loss() returned a tensor (20,) of torch.float32, and has to return one number"),
        ("torch.nn.Parameter(torch.zeros(3000))", "torch.zeros(3000)", "has nothing to train: it has no parameters"),
    ],
)
def test_a_model_that_cannot_be_used_ends_the_job_at_its_start(
    folder: Path, before: str, after: str, told: str
) -> None:
    model = textwrap.dedent(COUNTING)
    assert before in model
    (folder / "model.py").write_text(model.replace(before, after))
    code, said = run(folder, *TRAIN)
    assert code != 0 and told in said and "round 2" not in said, said


def test_a_model_of_the_zoo_learns_on_records_of_its_columns(folder: Path) -> None:
    command = [sys.executable, "-m", "elastic_run", "new", "deepfm"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout
    assert len(text.splitlines()) < 80
    (folder / "model.py").write_text(text)
    with (folder / "clicks.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "advert", "price", "age", "click"])
        for number in range(8000):
            user = number * 7919 % 200
            advert, price = "abcd"[number // 200 % 4], number % 10 / 10
            writer.writerow([user, advert, price, 0.5, int(user % 2 + (advert in "ab") > 1 - (price > 0.8))])
    words = ("train", "model.py", "--data=clicks.csv", "--validate=clicks.csv", "--epochs=3", "--nproc-per-node=2")
    code, said = run(folder, *words, "--servers=1")
    assert code == 0, said
    assert float(re.findall(r"evaluated 8,000 records: .*accuracy ([\d.]+)", said)[-1]) > 0.9, said


def test_the_page_leads_a_newcomer_from_data_to_predictions(tmp_path: Path) -> None:
    code = [block.text for block in pages.blocks() if block.page == "models" and block.language == "python"]
    text, model = code
    (tmp_path / "make.py").write_text(text)
    (tmp_path / "model.py").write_text(model)
    subprocess.run([sys.executable, "make.py"], cwd=tmp_path, check=True, timeout=SECONDS)
    shown = [line.strip() for block in pages.blocks() if block.page == "models" for line in block.text.splitlines()]
    ran = [line for line in shown if re.match(r"(python model\.py|elastic-run \w+ model\.py) ", line)]
    assert [line.split()[1] for line in ran] == ["model.py", "train", "evaluate", "predict", "train"]
    said = [start_as_shown(tmp_path, line) for line in ran]
    for each in said[:3]:
        assert float(re.findall(r"evaluated 2,000 records: .*accuracy (\S+)", each)[-1]) >= 0.9, each
    assert "3 workers add up" in said[1] and "out has the outputs of 2,000 records: 2 files" in said[3]
    assert "goes on after step" in said[4] and "model.best.pt has the best model, by accuracy" in said[4]


def start_as_shown(folder: Path, line: str) -> str:
    """What a command of the page prints."""
    program, *words = shlex.split(line)
    command = [sys.executable, *(["-m", "elastic_run"] if program == "elastic-run" else []), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


HALVES = """
    import torch
    import elastic_run

    def forward():
        return torch.nn.Linear(1, 1)

    def loss(output, labels):
        return (output - labels).square().mean()

    def optimizer(parameters):
        return torch.optim.SGD(parameters, lr=1e-6)

    def schedule(optimizer):
        global made
        made = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)
        return made

    def callbacks():
        return [lambda report: print("told", report["step"], report["records"], made.get_last_lr())]

    def feed(columns):
        return {"input": columns["id"].astype(float)[:, None] / 3000}, columns["label"][:, None]

    elastic_run.models.main()
"""


def test_a_schedule_is_stepped_and_saved_and_callbacks_are_told(folder: Path) -> None:
    (folder / "model.py").write_text(textwrap.dedent(HALVES))
    words = [sys.executable, "model.py", "train", "--data=data", "--batch-size=100", "--report-every=10"]
    first = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=True).stdout
    assert "told 10 1000 [5e-07]" in first and "told 30 3000 [1.25e-07]" in first
    more = subprocess.run([*words, "--epochs=2"], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert more.returncode == 0 and "goes on after step 30" in more.stdout, more.stderr
    assert "told 40 1000 [6.25e-08]" in more.stdout
