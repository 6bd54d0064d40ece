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
            width = features.numbers + 4 * (features.fields - 1) + 2 + 4 + 4
            self.deep = nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 1), nn.Flatten(0))

        def forward(self, **inputs):
            numbers, ids = self.join({**inputs, "key": torch.zeros_like(inputs["user"])})
            parts = [numbers, self.rows(ids).flatten(1)[:, 4:], self.keys(inputs["key"])]
            parts += [self.words(inputs["text"], inputs["text_offsets"]), self.seen(inputs["seen"]).sum(dim=1)]
            return self.deep(torch.cat(parts, dim=1))

    def forward(features):
        torch.nn.init.normal_
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

    (folder / "model.pt").unlink()
    code, said = run(folder, "train", "model.py", "--data=data.csv", "--epochs=2")
    assert code == 1 and "looking once" not in said, said  # the model's table has no servers now


def test_nothing() -> None:
    assert True
