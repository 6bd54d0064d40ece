"""Evaluates a model, or writes its outputs: a file for each shard, whole or absent, and so each record once.

Nothing waits for another rank but at the end. Whoever has a shard of a lost worker writes the same file, and a job that
is started again passes over files that are there.
"""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from ..client import pushes
from ..client.context import context
from ..readers.contract import Columns
from ..readers.opened import RecordFiles, RecordShard
from .auc import AUC
from .commands import FORMATS, ModelTask
from .errors import BadModel
from .outputs import encode_csv, encode_parquet, name_columns
from .saved_state import beside, write_whole
from .training import say_once
from .user_model import UserModel, count_records

MARK = ".elastic-run-predict.json"
"""Says of a folder which predictions it has."""


def identify(task: ModelTask, files: RecordFiles) -> str:
    """A name for these outputs: another where the state, the model's source or the data are others."""
    source, state = Path(task.model), task.state
    local = [Path(file) for file, _ in files.files if "://" not in file]
    versions = [(each.stat().st_size, each.stat().st_mtime_ns) for each in (*local, state)]
    facts = json.dumps([files.files, versions, task.shard_size, task.bad, task.kinds])
    digest = hashlib.blake2b(facts.encode(), digest_size=8)
    for path in (source, state):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


def evaluate(user: UserModel, module: nn.Module, files: RecordFiles, task: ModelTask) -> dict[str, float]:
    """Loss and metrics over all records, which rank 0 prints; empty on other ranks. Raises BadModel."""
    name = identify(task, files)
    folder = beside(task.state, "evaluations")
    result = folder / f"{name}.json"
    if result.exists():
        say_once(f"these records were evaluated before: {result} has what follows; remove it to compute it again")
    else:
        pieces = folder / name
        pieces.mkdir(parents=True, exist_ok=True)
        _write_pieces(files, f"evaluate-{name}", pieces, "json", task, _Evaluation(user, module).compute_piece, result)
        if context().rank:
            return {}
        write_whole(result, json.dumps(_merge(pieces)).encode())
        gone = pieces.rename(pieces.with_name(f"{name}.{os.getpid()}.gone"))
        shutil.rmtree(gone, ignore_errors=True)  # a slow rank may still write there what others have written
    if context().rank:
        return {}
    found: dict[str, float] = json.loads(result.read_text(encoding="utf-8"))
    records = int(found.pop("records"))
    left_out = f", {len(files) - records:,} bad rows were left out" if records < len(files) else ""
    means = ", ".join(f"{name} {mean:.6g}" for name, mean in found.items())
    say_once(f"evaluated {records:,} records{left_out}: {means}")
    return found


def predict(user: UserModel, module: nn.Module, files: RecordFiles, task: ModelTask) -> None:
    """Writes the outputs of all records into the folder. Raises BadModel."""
    ending = task.output_format
    name = identify(task, files) + ("" if ending == FORMATS[0] else f"-{ending}")
    task.output.mkdir(parents=True, exist_ok=True)
    mark = task.output / MARK
    others = any(task.output.glob(f"*.{ending}"))  # looked for first: other ranks write the mark before these
    if not mark.exists():
        if others:
            raise BadModel(f"--output={task.output} has other {ending} files: name a new folder")
        write_whole(mark, json.dumps({"predictions": name}).encode())
    elif json.loads(mark.read_text(encoding="utf-8")) != {"predictions": name}:
        raise BadModel(f"--output={task.output} has predictions of another model, state or data: name a new folder")
    encode = encode_csv if ending == "csv" else encode_parquet
    _write_pieces(files, f"predict-{name}", task.output, ending, task, _Prediction(user, module, encode).compute_piece)
    here = context()
    if here.rank == 0:
        for left in task.output.glob(".*.part"):
            if here.world_size == 1 or f".{here.round}-" not in left.name:
                left.unlink(missing_ok=True)  # of a worker that was killed, and not of a slow one
        count = sum(1 for _ in task.output.glob(f"*.{ending}"))
        but = ", but for bad rows" if task.bad else ""
        say_once(f"{task.output} has the outputs of {len(files):,} records{but}: {count:,} files, one for each shard")


def _write_pieces(
    files: RecordFiles,
    name: str,
    folder: Path,
    ending: str,
    task: ModelTask,
    compute: Callable[[RecordShard, int], bytes],
    merged: Path | None = None,
) -> None:
    """Returns when all are there, or merged. Raises BadModel where their folder has gone, or some of them."""
    with (
        pushes.set_aside(),
        files.shards(name, shard_size=task.shard_size, shuffle=False, commit="ack") as shards,
    ):
        for shard in shards:
            path = folder / f"{shard.key}.{ending}"
            if not path.exists():
                try:
                    write_whole(path, compute(shard, task.batch_size))  # pyrefly: ignore  # a `RecordShard`
                except FileNotFoundError:
                    _check_folder(folder, merged)
            shard.done()
    _check_folder(folder, merged)
    wanted = sum(-(-size // task.shard_size) for _, size in files.files)
    if (found := sum(1 for _ in folder.glob(f"*.{ending}"))) < wanted and not (merged and merged.exists()):
        raise BadModel(f"{folder} has {found:,} of {wanted:,} files: others were removed meanwhile. Start this again")


def _check_folder(folder: Path, merged: Path | None) -> None:
    """Raises BadModel where it has gone, and not because rank 0 has merged all pieces: this was one that two had."""
    if not folder.is_dir() and not (merged and merged.exists()):
        raise BadModel(f"the folder {folder} was removed while files were written into it: start this again")


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
    def compute_piece(self, shard: RecordShard, size: int) -> bytes:
        """The sums over a shard, as JSON."""
        sums: dict[str, float] = {"records": 0}
        areas: dict[str, list[AUC]] = {}
        for columns, _ in _read_batches(shard, size):
            fed = self._user.feed(columns)
            output = self._user.compute_output(self._module, fed.inputs)
            sums["records"] += fed.count
            found: dict[str, float | AUC] = {"loss": float(self._user.compute_loss(output, fed.labels))}
            for name, value in (found | self._user.compute_metrics(output, fed.labels, fed.count)).items():
                if isinstance(value, AUC):
                    areas.setdefault(name, []).append(value)
                else:
                    sums[name] = sums.get(name, 0.0) + value * fed.count
        return json.dumps(sums | {name: AUC.merge(parts).to_values() for name, parts in areas.items()}).encode()


def _merge(pieces: Path) -> dict[str, float]:
    """The means over all records, which do not depend on who has computed which piece."""
    sums: dict[str, list[float]] = {}
    areas: dict[str, list[AUC]] = {}
    for path in sorted(pieces.glob("*.json")):
        for name, value in json.loads(path.read_text()).items():
            if isinstance(value, dict):
                areas.setdefault(name, []).append(AUC.from_values(cast("dict[str, str]", value)))
            else:
                sums.setdefault(name, []).append(value)
    records = math.fsum(sums.pop("records"))
    means = {name: math.fsum(each) / max(records, 1) for name, each in sums.items()}
    return {"records": records, **means, **{name: AUC.merge(each).compute_area() for name, each in areas.items()}}


class _Prediction:
    """Of shards.

    Args:
        encode: makes a file of a shard's file, and the numbers and outputs of its records.
    """

    def __init__(
        self, user: UserModel, module: nn.Module, encode: Callable[[str, list[int], Mapping[str, Tensor]], bytes]
    ) -> None:
        self._user, self._module, self._encode = user, module.eval(), encode

    @torch.no_grad()
    def compute_piece(self, shard: RecordShard, size: int) -> bytes:
        """The outputs of a shard's records, as a file."""
        numbers, parts = list[int](), dict[str, list[Tensor]]()
        for columns, of_batch in _read_batches(shard, size):
            fed = self._user.feed(columns, labelled=False)
            numbers += of_batch
            for name, column in name_columns(self._user.compute_output(self._module, fed.inputs), fed.count).items():
                parts.setdefault(name, []).append(column)
        return self._encode(shard.file, numbers, {name: torch.cat(columns) for name, columns in parts.items()})
