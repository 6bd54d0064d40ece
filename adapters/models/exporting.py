"""Writes a trained model as a folder that needs torch alone: the module with its weights, features, `predict.py`.

The module is taken down as torch's own program (`torch.export`), so that neither its source nor elastic-run is needed.
A table becomes its rows by id; an id without a row gets what the table would begin it with, as in training.
"""

import json
import math
import os
import shutil
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ..features import serving
from ..features.serving import FittedFeatures, Predictor
from ..servers.specs import Normal, TableSpec, Uniform
from ..torch.embedding import Embedding
from .commands import ModelTask
from .errors import BadModel
from .saved_state import beside
from .training import say_once
from .user_model import UserModel, Value, describe, tensors_of

SAMPLE: tuple[object, ...] = (None, "", "1", "a b c", -2.5, 2**62, "no such value", math.inf)
"""Values of each column, on which an export must give what the model gives."""

CLOSE = 1e-6


class ExportedEmbedding(nn.Module):
    """The rows of a table as they are now; of other ids, what they would begin with. It trains nothing.

    Args:
        spec: the table.
        ids: (n,) int64, all different.
        rows: (n, columns) float32.
        mode, dtype: of the `Embedding` that it stands for.
    """

    ids: Tensor
    table: Tensor

    def __init__(self, spec: TableSpec, ids: Tensor, rows: Tensor, mode: str, dtype: torch.dtype) -> None:
        super().__init__()
        self._spec, self._mode, self._dtype = spec, mode, dtype
        if not len(ids):
            ids = torch.zeros(1, dtype=torch.int64)
            rows = self._begin_rows(ids)
        order = torch.argsort(ids)
        self.register_buffer("ids", ids[order])
        self.register_buffer("table", rows[order])

    def forward(self, ids: Tensor, offsets: Tensor | None = None) -> Tensor:
        """As `Embedding`'s."""
        flat = ids.reshape(-1)
        places = torch.searchsorted(self.ids, flat).clamp(max=len(self.ids) - 1)
        there = (self.ids[places] == flat).unsqueeze(1)
        rows = torch.where(there, self.table[places], self._begin_rows(flat))
        if offsets is None:
            return rows.reshape(*ids.shape, self._spec.columns).to(self._dtype)
        counted = torch.arange(flat.shape[0], device=flat.device)
        return functional.embedding_bag(counted, rows, offsets, mode=self._mode).to(self._dtype)

    def _begin_rows(self, ids: Tensor) -> Tensor:
        """(n, columns) float32: the same numbers as `kernels.fill_uniform` and `kernels.fill_normal`."""
        spec, begun = self._spec, self._spec.initializer
        if not isinstance(begun, Uniform | Normal):
            return torch.zeros((ids.shape[0], spec.columns))
        word = _mix(ids ^ _mix(torch.tensor(spec.seed)))
        columns: list[Tensor] = []
        for _ in range(spec.columns):
            word = _mix(word + _signed(0x9E3779B97F4A7C15))
            if isinstance(begun, Uniform):
                columns.append(begun.low + _shift(word, 11).double() * ((begun.high - begun.low) * 2.0**-53))
                continue
            radius = (-2.0 * ((_shift(word, 11).double() + 1.0) * 2.0**-53).log()).sqrt()
            word = _mix(word + _signed(0x9E3779B97F4A7C15))
            turn = (2.0 * math.pi * _shift(word, 11).double() * 2.0**-53).cos()
            columns.append(begun.mean + begun.std * radius * turn)
        return torch.stack(columns, dim=1).float()


def _signed(word: int) -> int:
    """64 bits as torch has them."""
    return word - (1 << 64) if word >> 63 else word


def _shift(words: Tensor, bits: int) -> Tensor:
    """To the right, without the sign."""
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def _mix(words: Tensor) -> Tensor:
    """The same as `kernels.mix`."""
    words = (words ^ _shift(words, 30)) * _signed(0xBF58476D1CE4E5B9)
    words = (words ^ _shift(words, 27)) * _signed(0x94D049BB133111EB)
    return words ^ _shift(words, 31)


class _WithTuple(nn.Module):
    """The module, called with its inputs in order: torch's program cannot have any name that a feature has."""

    def __init__(self, module: nn.Module, names: Iterable[str]) -> None:
        super().__init__()
        self.module, self.names = module, tuple(names)

    def forward(self, inputs: tuple[Tensor, ...]) -> Value:
        """What the module returns."""
        return self.module(**dict(zip(self.names, inputs, strict=True)))


def export_model(user: UserModel, module: nn.Module, task: ModelTask) -> None:
    """Writes the folder, and tries it. Raises BadModel."""
    features, folder = user.features, task.output
    assert features and features.fitted, "they are read from the state before"
    fitted = FittedFeatures(features.fitted.facts)
    sample: dict[str, list[object]] = {column: list(SAMPLE) for column in fitted.columns}
    module.eval()
    try:
        with torch.no_grad():
            wanted = user.compute_output(module, fitted(sample))
    except Exception as error:  # a user's code raises anything
        raise BadModel(f"{task.model}: the module cannot take missing and unseen values ({error})") from error
    writing = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    shutil.rmtree(writing, ignore_errors=True)
    writing.mkdir(parents=True)
    try:
        _freeze_tables(module, task)
        _write_program(module, fitted(sample), writing / serving.PROGRAM, task.model)
        (writing / serving.FEATURES).write_text(
            json.dumps({"label": features.label, "features": fitted.facts}, indent=1)
        )
        shutil.copyfile(serving.__file__, writing / "predict.py")
        _compare(wanted, writing, sample, task.model)
        writing.rename(folder)
    finally:
        shutil.rmtree(writing, ignore_errors=True)
    say_once(f"{folder} has the model: predict.predict(columns) of its predict.py needs torch alone")


def _freeze_tables(module: nn.Module, task: ModelTask) -> None:
    for parent in list(module.modules()):
        for name, each in list(parent.named_children()):
            if isinstance(each, Embedding):
                folder = beside(task.state, "tables") / quote(each.spec.name, safe="")
                ids, rows = (torch.as_tensor(np.load(folder / f"{kind}.npy")) for kind in ("ids", "rows"))
                setattr(parent, name, ExportedEmbedding(each.spec, ids, rows, each.mode, each.dtype))


def _write_program(module: nn.Module, inputs: Mapping[str, Tensor], path: Path, file: str) -> None:
    from torch.export import Dim, export, save  # here: it takes a second

    records = Dim("records", min=0)
    lengths = [Dim(f"values_{number}", min=0) for number in range(len(inputs))]
    shapes = tuple(
        {0: length if f"{name}_offsets" in inputs else records} for name, length in zip(inputs, lengths, strict=True)
    )
    given = (tuple(inputs.values()),)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of torch's own workings
            save(export(_WithTuple(module, inputs), given, dynamic_shapes=(shapes,), strict=False), str(path))
    except Exception as error:  # torch has no error of its own for what it cannot take down
        reason = " ".join(str(error).split())[:400]
        raise BadModel(
            f"{file}: the module cannot be exported: torch.export takes modules that do the same for any number of "
            f"records, without .item(), numpy or conditions on values ({type(error).__name__}: {reason})"
        ) from error


def _compare(wanted: Value, folder: Path, sample: dict[str, list[object]], file: str) -> None:
    """Raises BadModel where the folder does not give what the model gives, of all records or of one alone."""
    predictor = Predictor(folder)
    for begin, end in ((0, len(SAMPLE)), (1, 2)):
        found = list(tensors_of(predictor({name: values[begin:end] for name, values in sample.items()})))
        for one, other in zip(found, tensors_of(wanted), strict=True):
            if one.shape[1:] != other.shape[1:] or not torch.allclose(
                one, other[begin:end], rtol=CLOSE, atol=CLOSE, equal_nan=True
            ):
                raise BadModel(
                    f"{file}: the exported module gives {describe(one)} that differs from the model's: a record's "
                    "output must not depend on the records beside it, on chance or on what was computed before"
                )
