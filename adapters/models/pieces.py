"""Evaluates a model, or writes its outputs: a file for each shard, whole or absent, and so each record once.

Nothing waits for another rank but at the end. Whoever has a shard of a lost worker writes the same file, and a job that
is started again passes over files that are there.
"""

import csv
import hashlib
import io
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from ..client.context import context
from ..readers.contract import Columns
from ..readers.opened import RecordFiles, RecordShard
from .commands import ModelTask
from .errors import BadModel
from .training import say_once
from .user_model import UserModel, Value, count_records, describe

MARK = ".elastic-run-predict.json"
"""Says of a folder which predictions it has."""


def identify(task: ModelTask, files: RecordFiles) -> str:
    """A name for these outputs: another where the state, the model's source or the data are others."""
    source, state = Path(task.model), task.state
    local = [Path(file) for file, _ in files.files if "://" not in file]
    versions = [(each.stat().st_size, each.stat().st_mtime_ns) for each in (*local, state)]
    facts = json.dumps([files.files, versions, task.shard_size, task.bad])
    digest = hashlib.blake2b(facts.encode(), digest_size=8)
    for path in (source, state):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


def evaluate(user: UserModel, module: nn.Module, files: RecordFiles, task: ModelTask) -> None:
    """Prints loss and metrics over all records, from rank 0. Raises BadModel."""
    name = identify(task, files)
    folder = task.state.with_name(task.state.name + ".evaluations")
    result = folder / f"{name}.json"
    if result.exists():
        say_once(f"these records were evaluated before: {result} has what follows; remove it to compute it again")
    else:
        pieces = folder / name
        pieces.mkdir(parents=True, exist_ok=True)
        _write_pieces(files, f"evaluate-{name}", pieces, "json", task, _Evaluation(user, module).compute_piece)
        if context().rank:
            return
        write_piece(result, json.dumps(_merge(pieces)))
        gone = pieces.rename(pieces.with_name(f"{name}.{os.getpid()}.gone"))
        shutil.rmtree(gone, ignore_errors=True)  # a slow rank may still write there what others have written
    if context().rank == 0:
        found: dict[str, float] = json.loads(result.read_text(encoding="utf-8"))
        records = int(found.pop("records"))
        left_out = f", {len(files) - records:,} bad rows were left out" if records < len(files) else ""
        means = ", ".join(f"{name} {mean:.6g}" for name, mean in found.items())
        say_once(f"evaluated {records:,} records{left_out}: {means}")


def predict(user: UserModel, module: nn.Module, files: RecordFiles, task: ModelTask) -> None:
    """Writes the outputs of all records into the folder. Raises BadModel."""
    name = identify(task, files)
    task.output.mkdir(parents=True, exist_ok=True)
    mark = task.output / MARK
    others = any(task.output.glob("*.csv"))  # looked for first: other ranks write the mark before these
    if not mark.exists():
        if others:
            raise BadModel(f"--output={task.output} has other CSV files: name a new folder")
        write_piece(mark, json.dumps({"predictions": name}))
    elif json.loads(mark.read_text(encoding="utf-8")) != {"predictions": name}:
        raise BadModel(f"--output={task.output} has predictions of another model, state or data: name a new folder")
    _write_pieces(files, f"predict-{name}", task.output, "csv", task, _Prediction(user, module).compute_piece)
    here = context()
    if here.rank == 0:
        for left in task.output.glob(".*.part"):
            if here.world_size == 1 or f".{here.round}-" not in left.name:
                left.unlink(missing_ok=True)  # of a worker that was killed, and not of a slow one
        count = sum(1 for _ in task.output.glob("*.csv"))
        but = ", but for bad rows" if task.bad else ""
        say_once(f"{task.output} has the outputs of {len(files):,} records{but}: {count:,} files, one for each shard")


def _write_pieces(
    files: RecordFiles,
    name: str,
    folder: Path,
    ending: str,
    task: ModelTask,
    compute: Callable[[RecordShard, int], str],
) -> None:
    with files.shards(name, shard_size=task.shard_size, shuffle=False, commit="ack") as shards:
        for shard in shards:
            path = folder / f"{shard.key}.{ending}"
            if not path.exists():
                write_piece(path, compute(cast(RecordShard, shard), task.batch_size))
            shard.done()


def write_piece(path: Path, text: str) -> None:
    """Whole or absent, whoever else writes the same at the same time."""
    here = context()
    part = path.with_name(f".{path.name}.{here.round}-{here.rank}-{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except FileNotFoundError:
        if path.parent.exists():
            raise  # else all pieces were there, and rank 0 has them: this was one that two ranks had


def _read_batches(shard: RecordShard, size: int) -> Iterator[tuple[Columns, list[int]]]:
    """The records of a shard, and the number of each in its file."""
    for begin in range(0, len(shard), size):
        columns = shard.read(begin, begin + size)
        if count_records(columns):
            left_out = {each.position for each in columns.bad}
            numbers = shard.indices[begin : begin + size]
            yield columns, [number for at, number in enumerate(numbers) if at not in left_out]


class _Evaluation:
    def __init__(self, user: UserModel, module: nn.Module) -> None:
        self._user, self._module = user, module.eval()

    @torch.no_grad()
    def compute_piece(self, shard: RecordShard, size: int) -> str:
        """The sums over a shard, as JSON."""
        sums: dict[str, float] = {"records": 0}
        for columns, _ in _read_batches(shard, size):
            fed = self._user.feed(columns)
            output = self._user.compute_output(self._module, fed.inputs)
            found = {"loss": float(self._user.compute_loss(output, fed.labels))}
            found |= self._user.compute_metrics(output, fed.labels, fed.count)
            sums["records"] += fed.count
            for name, mean in found.items():
                sums[name] = sums.get(name, 0.0) + mean * fed.count
        return json.dumps(sums)


def _merge(pieces: Path) -> dict[str, float]:
    """The means over all records, which do not depend on who has computed which piece."""
    found: list[Mapping[str, float]] = [json.loads(path.read_text()) for path in sorted(pieces.glob("*.json"))]
    names = dict.fromkeys(name for each in found for name in each)
    sums = {name: math.fsum(each.get(name, 0.0) for each in found) for name in names}
    records = sums["records"]
    return {name: value if name == "records" else value / max(records, 1) for name, value in sums.items()}


class _Prediction:
    def __init__(self, user: UserModel, module: nn.Module) -> None:
        self._user, self._module = user, module.eval()

    @torch.no_grad()
    def compute_piece(self, shard: RecordShard, size: int) -> str:
        """The outputs of a shard's records, as CSV."""
        text = io.StringIO()
        writer, names = csv.writer(text, lineterminator="\n"), list[str]()
        for columns, numbers in _read_batches(shard, size):
            fed = self._user.feed(columns, labelled=False)
            outputs = name_columns(self._user.compute_output(self._module, fed.inputs), fed.count)
            if not names:
                names = list(outputs)
                writer.writerow(["file", "record", *names])
            rows = zip(numbers, *(outputs[name] for name in names), strict=True)
            writer.writerows([shard.file, number, *(f"{value:.9g}" for value in values)] for number, *values in rows)
        return text.getvalue()


def name_columns(output: Value, count: int, name: str = "output") -> dict[str, list[float]]:
    """An output as columns: those of a matrix have numbers, those of a mapping its names. Raises BadModel."""
    if isinstance(output, Tensor) and output.ndim and len(output) == count:
        matrix = output.detach().reshape(count, -1)
        flat = [cast("list[float]", matrix[:, at].tolist()) for at in range(matrix.shape[1])]  # pyright: ignore[reportUnknownMemberType]  # torch has no type for it
        return {name: flat[0]} if len(flat) == 1 else {f"{name}_{at}": each for at, each in enumerate(flat)}
    found: dict[str, list[float]] = {}
    if isinstance(output, Mapping):
        for key, each in cast("Mapping[str, Value]", output).items():
            found |= name_columns(each, count, str(key))
    elif isinstance(output, tuple):
        for at, each in enumerate(cast("tuple[Value, ...]", output)):
            found |= name_columns(each, count, f"{name}_{at}")
    else:
        raise BadModel(f"the module's output for {count} records is {describe(output)}: there is to be one for each")
    return found
