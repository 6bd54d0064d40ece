"""Features in place of `feed`: what a model file declares, what the data tell of it, and a part of its state.

The records are summarized by all ranks on leased shards: a file for each, merged by whoever comes first. It is kept
beside the state under a name of data and declaration, so that a job that is started again does not do it again.
"""

import hashlib
import inspect
import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from ...rendezvous.base.frozen import dataclass
from ..client.context import context
from ..features.declared import Features, list_columns, read_features, read_tables
from ..features.fitting import fit_features, looks_of
from ..features.inference import infer_features, looks_at
from ..features.serving import FittedFeatures, numbers_of
from ..features.summary import ColumnLook, Summary
from ..readers.contract import Columns
from ..readers.opened import RecordFiles
from ..torch.checkpoint import read_part
from .commands import ModelTask
from .errors import BadModel
from .saved_state import beside, write_whole

AUTO = "auto"

PIECES = 64
"""Into how many shards records are divided that are few."""

SMALLEST, LARGEST = 1 << 10, 1 << 16
"""Records of a shard."""


class ModelFeatures:
    """The features of a model file; a part of its state.

    Args:
        declared: None: they are inferred.
        label: the column that is learned.
        file: the model's, for messages.

    Attributes:
        label: as given.
        fitted: None until `fit` or `load_state_dict`.
    """

    def __init__(self, declared: Features | None, label: str, file: str) -> None:
        self._declared = declared
        self._auto = declared is None
        self._file = file
        self.label = label
        self.fitted: FittedFeatures | None = None

    def state_dict(self) -> dict[str, str]:
        """See `Checkpoint`."""
        declared = self._declared.to_tables() if self._declared else {}
        facts = self.fitted.facts if self.fitted else []
        return {"features": json.dumps({"declared": declared, "label": self.label, "facts": facts})}

    def load_state_dict(self, state: Mapping[str, str]) -> None:
        """See `Checkpoint`. Raises BadModel where the state has other features."""
        known = json.loads(state["features"])
        declared = read_tables(known["declared"], "the state")
        if known["label"] != self.label or (not self._auto and declared != self._declared):
            raise BadModel(
                f"the state is of a model with other features or another label than {self._file} has now: name its own "
                f"with --state, or another file to train anew. Then it had label = {known['label']!r} and {declared}"
            )
        self._declared = declared
        self.fitted = FittedFeatures(known["facts"])

    def read_state(self, state: Path) -> None:
        """Takes what was saved with a model. Raises BadModel, BadCheckpoint."""
        self.load_state_dict(read_part(state, "features")[1])

    def fit(self, files: RecordFiles, task: ModelTask) -> None:
        """Finds out about the records what the features need, and says so. Raises BadModel, BadFeatures."""
        columns = ", ".join(map(repr, files.columns))
        if self.label not in files.columns:
            raise BadModel(f"{self._file}: label = {self.label!r} names no column: the records have {columns}")
        declared = self._declared
        looks = looks_of(declared) if declared else looks_at(files.columns, self.label)
        for name, feature in declared.declared.items() if declared else ():
            for column in list_columns(name, feature):
                if column not in files.columns:
                    raise BadModel(
                        f"{self._file}: the feature {name!r} is made of a column {column!r}: the records have {columns}"
                    )
        summary = summarize_records(looks, files, task) if looks else Summary(())
        if declared is None:
            inferred = infer_features(files.columns, self.label, summary)
            declared = inferred.features
            _print_at_first_rank(
                f"features, inferred from {summary.records:,} records; write them into {self._file} to change them:"
            )
            _print_at_first_rank(str(inferred))
        self._declared = declared
        self.fitted = fit_features(declared, summary)

    def call_forward(self, forward: Callable[..., object]) -> object:
        """What `forward` returns: with these features, if it needs an argument, or has one of that name."""
        given = inspect.signature(forward).parameters
        if "features" in given:
            return forward(features=self.fitted)
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        needed = (each for each in given.values() if each.kind in kinds and each.default is inspect.Parameter.empty)
        return forward(self.fitted) if any(needed) else forward()

    def feed(self, columns: Columns, *, labelled: bool) -> tuple[dict[str, Tensor], Any]:  # Any: an array or a tensor
        """Inputs by the features' names, and labels; None where they are not needed. Raises BadModel."""
        assert self.fitted, "features are fitted before the first batch"
        try:
            inputs = self.fitted(columns)
        except ValueError as error:
            raise BadModel(f"{self._file}: {error}") from None
        return inputs, self._read_labels(columns) if labelled else None

    def _read_labels(self, columns: Columns) -> Any:  # Any: as above
        if self.label not in columns:
            raise BadModel(f"{self._file}: there is no column {self.label!r}, which label = {self.label!r} names")
        values: Any = columns[self.label]  # of a reader
        numbers = numbers_of(values)
        if bool(numbers.isfinite().all()):
            exact = getattr(getattr(values, "dtype", None), "kind", "") in ("b", "i", "u")
            return numbers.to(torch.int64 if exact else torch.float32)
        wrong = values[int((~numbers.isfinite()).nonzero()[0])]
        raise BadModel(
            f"{self._file}: a record has the label {wrong!r}, which is no finite number: leave such records out of the "
            "data"
        )


def declare_features(module: object, file: str) -> ModelFeatures | None:
    """The features of a model file that has no `feed`; None where there are none. Raises BadModel, BadFeatures."""
    given: Any = getattr(module, "features", None)  # Any: a user's
    if given is None or callable(getattr(module, "feed", None)):
        return None
    label: Any = getattr(module, "label", None)
    if not isinstance(label, str):
        raise BadModel(f'{file} has features and no label: add label = "click", the column that is learned')
    found: object = given() if callable(given) else given
    if isinstance(found, Mapping):
        found = Features(cast("Mapping[str, Any]", found))
    if isinstance(found, str) and found != AUTO:
        found = read_features(Path(file).parent / found)
    if found != AUTO and not isinstance(found, Features):
        raise BadModel(f'{file}: features is {found!r}: it is Features(...), "auto", or the name of a file')
    return ModelFeatures(found if isinstance(found, Features) else None, label, file)


def summarize_records(looks: tuple[ColumnLook, ...], files: RecordFiles, task: ModelTask) -> Summary:
    """A summary of all records, made by all ranks. Raises BadModel, and what reading and leasing raise."""
    name = _identify(looks, files, task)
    folder = beside(task.state, "features")
    result = folder / f"{name}.json"
    if not result.exists():
        _print_at_first_rank(f"looking once at {len(files):,} records, for the features: kept in {folder}")
        pieces = _Pieces(looks, files, folder / name)
        pieces.write(f"features-{name}", result)
        text = pieces.merge()
        if text and not result.exists():
            write_whole(result, text.encode())
        shutil.rmtree(pieces.folder, ignore_errors=True)
        if not result.exists():
            raise BadModel(f"{pieces.folder} was removed while it was written into: start this again")
    return Summary.from_json(looks, result.read_text(encoding="utf-8"))


def _identify(looks: tuple[ColumnLook, ...], files: RecordFiles, task: ModelTask) -> str:
    """Another name for other looks or other data."""
    local = [Path(file) for file, _ in files.files if "://" not in file]
    versions = [(each.stat().st_size, each.stat().st_mtime_ns) for each in local]
    facts = json.dumps([files.files, versions, [repr(each) for each in looks], task.bad, task.kinds])
    return hashlib.blake2b(facts.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Summaries of shards, a file each."""

    looks: tuple[ColumnLook, ...]
    files: RecordFiles
    folder: Path

    @property
    def shard_size(self) -> int:
        return min(LARGEST, max(SMALLEST, -(-len(self.files) // PIECES)))

    def write(self, name: str, result: Path) -> None:
        """Returns when all are there, or `result` is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.files.shards(name, shard_size=self.shard_size, shuffle=False, commit="ack") as shards:
            for shard in shards:
                path = self.folder / f"{shard.key}.json"
                if not path.exists() and not result.exists():
                    summary = Summary(self.looks)
                    summary.add(shard.read())  # pyrefly: ignore  # a `RecordShard`
                    with suppress(FileNotFoundError):  # others have merged all, this one too: two ranks had it
                        write_whole(path, summary.to_json().encode())
                shard.done()

    def merge(self) -> str:
        """All of them in their order, whoever has made which; empty where others have removed them."""
        together, found = Summary(self.looks), 0
        with suppress(FileNotFoundError):
            for path in sorted(self.folder.glob("*.json")):
                together.merge(Summary.from_json(self.looks, path.read_text(encoding="utf-8")))
                found += 1
        wanted = sum(-(-size // self.shard_size) for _, size in self.files.files)
        return together.to_json() if found == wanted else ""


def _print_at_first_rank(text: str) -> None:
    if context().rank == 0:
        print(text, flush=True)
