"""What a training has come to so far: lines of a file, the best evaluation among them, and when to stop."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ...rendezvous.base.frozen import dataclass
from .errors import BadModel
from .event_file import EventFile


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One evaluation.

    Attributes:
        step, records: after which the model was evaluated; records count once in each epoch.
        values: the loss, and each metric.
    """

    step: int
    records: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Aim:
    """What makes one evaluation better than another: a number by its name, the highest or the lowest."""

    name: str = "loss"
    highest: bool = False

    def find_best(self, evaluations: Sequence[Evaluated]) -> int:
        """Which of them, the first of equals; -1: none has a number. Raises BadModel where there is no such name."""
        best, found = -1, math.nan
        for at, each in enumerate(evaluations):
            if self.name not in each.values:
                raise BadModel(f"--best={self.name}: there is no such metric, but {', '.join(each.values)}")
            value = each.values[self.name] if self.highest else -each.values[self.name]
            if not math.isnan(value) and (best < 0 or value > found):
                best, found = at, value
        return best


def read_aim(text: str) -> Aim:
    """Of NAME, NAME:max or NAME:min; a name alone is the highest, the loss the lowest. Raises ValueError."""
    name, _, which = text.partition(":")
    if not name or which not in ("", "min", "max"):
        raise ValueError(text)
    return Aim(name, which == "max" or (not which and name != "loss"))


def format_table(evaluations: Sequence[Evaluated], aim: Aim) -> str:
    """All evaluations, a line for each, for a person."""
    names = list(dict.fromkeys(name for each in evaluations for name in each.values))
    best = aim.find_best(evaluations)
    rows = [["step", "records", *names, ""]]
    for at, each in enumerate(evaluations):
        numbers = (f"{each.values.get(name, math.nan):.6g}" for name in names)
        rows.append([f"{each.step:,}", f"{each.records:,}", *numbers, "best" if at == best else ""])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


class TrainingHistory:
    """The file of one training, and the same for TensorBoard. Of rank 0.

    Args:
        file: of lines of JSON: step, records, and the numbers of `training` or of `validation`.
        events: the folder for TensorBoard.
        step: after which the training goes on. What was written of later ones is dropped: they come again.
    """

    def __init__(self, file: Path, events: Path, step: int) -> None:
        self._file = file
        kept = [line for line in _read_lines(file) if line["step"] <= step] if step else []
        self.evaluations = [
            Evaluated(line["step"], line["records"], _read_values(line["validation"]))
            for line in kept
            if "validation" in line
        ]
        part = file.with_name(f".{file.name}.part")
        part.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        part.replace(file)
        self._events = EventFile(events, step + 1 if step else 0)

    def add_training(self, step: int, records: int, loss: float) -> None:
        """The mean loss since the last line. Raises OSError."""
        self._add("training", step, records, {"loss": loss})

    def add_evaluation(self, evaluated: Evaluated) -> None:
        """Raises OSError."""
        self.evaluations.append(evaluated)
        self._add("validation", evaluated.step, evaluated.records, evaluated.values)

    def _add(self, what: str, step: int, records: int, values: Mapping[str, float]) -> None:
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}  # JSON has no other
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "records": records, what: finite}) + "\n")
        self._events.add_scalars(step, {f"{what}/{name}": value for name, value in values.items()})


def _read_values(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in values.items()}


def _read_lines(file: Path) -> list[dict[str, Any]]:  # Any: JSON
    """Those that are whole."""
    found: list[dict[str, Any]] = []
    for text in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            line: object = json.loads(text)
        except ValueError:
            continue  # of a worker that was killed
        if isinstance(line, dict) and {"step", "records"} <= cast("dict[str, Any]", line).keys():
            found.append(cast("dict[str, Any]", line))
    return found
