"""A model's state on disk: how far it is trained, the rows of its tables beside it, and the best one."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from ..client.context import context
from ..torch.checkpoint import read_part
from .errors import BadModel

MARK = "of-state"
"""A file in a folder of rows: of which training and step they are."""


class TrainingProgress:
    """A part of the state.

    Attributes:
        epochs: for which the model was trained to the end; 0: it was not.
        records: that were used; one counts once in each epoch.
        due: the state is to be evaluated before the training goes on.
        training: a name of this training.
    """

    def __init__(self) -> None:
        self.epochs = self.records = 0
        self.due = False
        self.training = secrets.token_hex(8)

    def state_dict(self) -> dict[str, int | str]:
        """See `Checkpoint`."""
        return {"epochs": self.epochs, "records": self.records, "due": int(self.due), "training": self.training}

    def load_state_dict(self, state: Mapping[str, int | str]) -> None:
        """See `Checkpoint`."""
        self.epochs, self.records, self.due = int(state["epochs"]), int(state["records"]), bool(state["due"])
        self.training = str(state["training"])

    def mark_rows(self, step: int) -> str:
        """What is written beside the rows of this state."""
        return f"{self.training} {step}"


def read_progress(state: Path) -> tuple[int, TrainingProgress]:
    """A state's step and progress. Raises BadCheckpoint, OSError."""
    progress = TrainingProgress()
    step, values = read_part(state, "progress")
    progress.load_state_dict(values)
    return step, progress


def is_trained(state: Path, epochs: int = 1) -> bool:
    """Whether there is a model that was trained to the end of so many epochs. Raises BadCheckpoint."""
    return state.exists() and read_progress(state)[1].epochs >= epochs


def beside(state: Path, ending: str) -> Path:
    """MODEL.pt.ENDING."""
    return state.with_name(f"{state.name}.{ending}")


def find_best(state: Path) -> Path:
    """Where the best state of a training is: MODEL.best.pt."""
    return state.with_name(f"{state.stem}.best{state.suffix}")


def put_exported(state: Path) -> None:
    """Gives this process's tables the rows that training has written with this state. Raises BadModel."""
    from ..servers.session import session  # here, and below: it loads numba, and only models with tables have that

    folder = beside(state, "tables")
    step, progress = read_progress(state)
    if _read_mark(folder) != progress.mark_rows(step):
        what = "has rows of another training or step" if folder.is_dir() else "is not there"
        best = find_best(state)
        other = f", or name the best state with --state={best}" if best.is_file() else ""
        raise BadModel(
            f"{state} has the model after step {step:,}, and {folder} {what}: they are written at the end, so train "
            f"to the end first{other}"
        )
    session().put_exported(folder)


def export_rows(state: Path, mark: str) -> None:
    """Writes the rows of this process's tables beside this state."""
    from ..servers.export import export_tables

    folder = beside(state, "tables")
    if folder.exists():
        shutil.rmtree(folder)
    export_tables(folder)
    (folder / MARK).write_text(mark, encoding="utf-8")


def keep_best(state: Path, rows: str) -> None:
    """Keeps this state under another name.

    Args:
        rows: the mark of its rows, where it has tables; else empty.
    """
    best = find_best(state)
    own, kept = beside(state, "tables"), beside(best, "tables")
    if rows and _read_mark(own) == rows:
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(own, kept, copy_function=link_file)
    elif rows:
        export_rows(best, rows)
    part = best.with_name(f".{best.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    link_file(state, part)
    part.replace(best)


def link_file(source: str | Path, target: str | Path) -> None:
    """Gives a file that is only ever replaced a second name, or copies it where there are no links."""
    with contextlib.suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)


def write_whole(path: Path, content: bytes) -> None:
    """Whole or absent, whoever else writes the same at the same time. Raises OSError."""
    here = context()
    part = path.with_name(f".{path.name}.{here.round}-{here.rank}-{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(path)


def _read_mark(folder: Path) -> str:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return (folder / MARK).read_text(encoding="utf-8")
    return ""
