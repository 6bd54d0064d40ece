"""Jobs that train with features in place of `feed`, on columns as ugly as real ones, and what is exported of them."""

import csv
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from elastic_run.adapters.models.zoo_files import list_names, read_model

from ..house import pages

SECONDS = 240.0

RECORDS = 3000

MODEL = """
    import os, signal
    import torch
    from torch import nn
    import elastic_run
    from elastic_run.adapters.features.summary import Summary
    from elastic_run.features import Category, Cross, Features, IdSequence, Numeric, Words

    features = Features({
        "Alter (Jahre)": Numeric(),
        "class": Numeric("Alter (Jahre)", bins=4),
        "price": Numeric(log=True),
        "nothing": Numeric(),
        "größe": Numeric(bins=(1, 2)),
        "user": Category(hash=100),
        "stadt": Category("größe", vocabulary=50, min_count=2),
        "key": Category("user", table=True),
        "both": Cross(("user", "größe"), hash=50),
        "seen": IdSequence(separator="|", length=3),
        "text": Words(hash=64),
    })
    label = "click"

    class Net(nn.Module):
        def __init__(self, features):
            super().__init__()
            self.join = features.join
            self.keys = elastic_run.torch.Embedding("keys", 2, elastic_run.servers.SGD(lr=0.1), seed=3)
            self.rows = nn.Embedding(400, 4)
            self.words = nn.EmbeddingBag(65, 4)
            self.seen = nn.Embedding(features.rows_of("seen"), 4, padding_idx=0)
            width = features.numbers + 4 * features.fields + 2 + 4 + 4
            self.deep = nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 1), nn.Flatten(0))

        def forward(self, **inputs):
            numbers, ids = self.join({**inputs, "key": torch.zeros_like(inputs["user"])})
            parts = [numbers, self.rows(ids).flatten(1), self.keys(inputs["key"])]
            parts += [self.words(inputs["text"], inputs["text_offsets"]), self.seen(inputs["seen"]).sum(dim=1)]
            return self.deep(torch.cat(parts, dim=1))

    def forward(features):
        return Net(features)

    def loss(output, labels):
        return nn.functional.binary_cross_entropy_with_logits(output, labels.float())

    def optimizer(parameters):
        return torch.optim.Adam(parameters, lr=0.01)

    def metrics(output, labels):
        return {"finite": output.isfinite().double(), "clicks": labels.double()}

    add, added = Summary.add, 0

    def dies(self, columns):
        global added
        added += 1
        if added == 2 and os.environ.get("FAIL") and elastic_run.context().round == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        add(self, columns)

    Summary.add = dies
"""

ROWS: list[dict[str, object]] = [
    dict(zip(("Alter (Jahre)", "price", "nothing", "größe", "user", "seen", "text"), row, strict=True))
    for row in (
        (33, 1.5, None, "Köln", 2**53 + 1, "1|2|3|4", "Text 5, der"),
        (None, None, None, None, None, None, None),
        ("keine", "inf", 7, "nie gesehen", 2**53, "99", "ganz neue Wörter 🎉"),
        (-1e300, -1e9, "x", "x" * 5000, -(2**63), "|1||", "der der der"),
        (79, 400, None, "🎉", 1, "3", "TEXT 12"),
        (12.5, 1e300, None, 1.5, 2**63 - 1, "2|1", "."),
    )
]
"""Records with all that may be missing, unseen or too large."""

USE = """
import json, sys
sys.path.insert(0, "served")
import predict
rows = json.load(open("rows.json"))
columns = {name: [row.get(name) for row in rows] for name in rows[0]}
together, alone = predict.predict(columns), [float(predict.predict([row])[0]) for row in rows[:5]]
assert not any(name.split(".")[0] == "elastic_run" for name in sys.modules)
print(json.dumps([together.tolist(), alone]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with (tmp_path / "data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Alter (Jahre)", "price", "nothing", "größe", "user", "seen", "text", "click"])
        for at in range(RECORDS):
            age = ("", "keine", "inf", "nan", "-1e300")[at % 7] if at % 7 < 5 else at % 80
            city = ("", "Köln", "🎉", "x" * 5000, f"einmal {at}")[at % 5]
            seen = "|".join(map(str, range(at % 5)))
            user = 2**53 + at % 90 if at % 3 else ""
            writer.writerow([age, "" if at % 11 == 0 else at / 7, "", city, user, seen, f"Text {at % 13}, der", at % 2])
    (tmp_path / "model.py").write_text(textwrap.dedent(MODEL))
    return tmp_path


def run(folder: Path, *words: str, fails: str = "") -> tuple[int, str]:
    command = [sys.executable, "-m", "elastic_run", *words]
    environment = {**os.environ, "FAIL": fails}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, env=environment)
    return done.returncode, done.stdout + done.stderr


def test_features_are_fitted_once_by_all_workers_one_of_which_is_killed_and_served_by_torch_alone(folder: Path) -> None:
    words = ("train", "model.py", "--data=data.csv", "--nproc-per-node=2", "--servers=1", "--max-restarts=2")
    code, said = run(folder, *words, "--validate=data.csv", fails="yes")
    assert code == 0 and "died by SIGKILL" in said, said
    assert re.search(r"evaluated 3,000 records: .*finite 1, clicks 0.5", said), said
    (kept,) = (folder / "model.pt.features").iterdir()
    records, numbers, texts = json.loads(kept.read_text())
    assert records == RECORDS and all(each["missing"] + each["infinite"] <= RECORDS for each in numbers) and texts

    with (folder / "test.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [list(ROWS[0]), *(["" if value is None else value for value in row.values()] for row in ROWS)]
        )
    code, said = run(folder, "predict", "model.py", "--data=test.csv", "--output=out")
    assert code == 0, said
    (outputs,) = (folder / "out").glob("*.csv")
    wanted = [float(row["output"]) for row in csv.DictReader(outputs.read_text().splitlines())]
    code, said = run(folder, "export", "model.py", "--output=served")
    assert code == 0 and "served has the model" in said, said
    (folder / "rows.json").write_text(json.dumps(ROWS))
    served = subprocess.run([sys.executable, "-c", USE], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert served.returncode == 0, served.stderr
    together, alone = json.loads(served.stdout)
    assert together == pytest.approx(wanted, abs=1e-6) and alone == pytest.approx(wanted[: len(alone)], abs=1e-6)
    assert len({f"{each:.6f}" for each in wanted}) > 5
    code, said = run(folder, "export", "model.py", "--output=served")
    assert code == 2 and "--output=served is there already: name a new folder" in said, said


ZOO = """
import json, os, sys
import torch
from elastic_run.adapters.features.serving import Predictor
from elastic_run.adapters.models.worker import run
from pathlib import Path

torch.set_num_threads(1)
for name in sys.argv[1:]:
    if not (child := os.fork()):  # each has a ledger of its own
        run(["train", f"{name}.py", "--data=clicks.csv", "--epochs=4"])
        run(["evaluate", f"{name}.py", "--data=clicks.csv"])
        run(["predict", f"{name}.py", "--data=clicks.csv", f"--output=out-{name}"])
        run(["export", f"{name}.py", f"--output={name}-served"])
        served = Predictor(Path(f"{name}-served"))(json.loads(Path("columns.json").read_text())).tolist()
        Path(f"out-{name}/served.json").write_text(json.dumps(served))
        if name == "clicks":
            Path("clicks-served").rename("served")
            exec(Path("use.py").read_text())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""


def test_a_program_of_sql_trains_and_predicts_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    lines = [f"{number % 60},{number % 9},{'abc'[number % 3]},{int(number % 9 > 4)}\n" for number in range(600)]
    (tmp_path / "clicks.csv").write_text("age,price,city,click\n" + "".join(lines))
    program = """
        SELECT * FROM 'clicks.csv' TO TRAIN logistic_regression WITH epochs=2 LABEL click INTO model;
        SELECT age, price, city FROM 'clicks.csv' LIMIT 100 TO PREDICT outputs USING model;
    """
    (tmp_path / "clicks.sql").write_text(program + "SELECT * FROM 'clicks.csv' TO EVALUATE none")
    code, told = run(tmp_path, "sql", "clicks.sql")
    assert code == 2 and "there is no model in none" in told and "in 20 steps" in told
    outputs = [line for path in (tmp_path / "outputs").iterdir() for line in path.read_text().splitlines()[1:]]
    assert len(outputs) == 100
    (tmp_path / "clicks.sql").write_text(program)
    code, told = run(tmp_path, "sql", "clicks.sql")
    assert code == 0 and "is trained" in told, told


def test_each_model_of_the_zoo_and_that_of_the_page_learns_and_is_exported(tmp_path: Path) -> None:
    names = list_names()
    assert names == ["dcn_v2", "deepfm", "logistic_regression", "wide_deep", "xdeepfm"]
    for name in names:
        (tmp_path / f"{name}.py").write_text(read_model(name))
        assert len(read_model(name).splitlines()) < 80
    shown, use = (block.text for block in pages.blocks() if block.page == "features" and block.language == "python")
    assert len(shown.splitlines()) < 40
    (tmp_path / "clicks.py").write_text(shown)
    (tmp_path / "use.py").write_text(use)
    names.append("clicks")
    with (tmp_path / "clicks.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "advert", "price", "age", "click"])
        for number in range(2400):
            user = number * 7919 % 200
            advert, price = "abcd"[number // 200 % 4], number % 10 / 10
            writer.writerow([user, advert, price, 0.5, int(user % 2 + (advert in "ab") > 1 - (price > 0.8))])
    columns = {"user": [0, None, "new"], "advert": ["a", "", "zz"], "price": [0.0, None, 1e9], "age": [0.5, "x", -1]}
    (tmp_path / "columns.json").write_text(json.dumps(columns))
    (tmp_path / "all.py").write_text(ZOO)
    command = [sys.executable, "all.py", *names]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"evaluated 2,400 records: loss ([^ ,\n]+)", done.stdout)
    assert len(found) == 6 and max(map(float, found)) < 0.3, done.stdout
    for name in names:
        (outputs,) = sorted((tmp_path / f"out-{name}").glob("*.csv"))[:1]
        first = float(next(csv.DictReader(outputs.read_text().splitlines()))["output"])
        served = json.loads((tmp_path / f"out-{name}" / "served.json").read_text())
        assert served[0] == pytest.approx(first, rel=1e-6, abs=1e-6) and len(served) == 3, name
