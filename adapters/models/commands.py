"""What `train`, `evaluate`, `predict` and `export` are asked to do, as values, and what can be wrong with it.

The launcher reads the same words before it starts anything, and the workers read them again (loads no framework).
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NoReturn

from ...rendezvous.base.frozen import dataclass
from ..readers.errors import BadFiles
from ..readers.found_files import find_files
from .errors import BadModel
from .history import read_aim
from .model_source import check_model

Verb = Literal["train", "evaluate", "predict", "export"]

VERBS: tuple[Verb, ...] = ("train", "evaluate", "predict", "export")

FORMATS = ("csv", "parquet")
"""Of outputs."""

BATCHES = 16
"""In a shard, where its size is not given."""

KINDS = ("int64", "float64", "str")
"""That a column can be given."""

_KINDS = re.compile(rf"(.+?):({'|'.join(KINDS)})(?:,|$)")
"""One of them; a name may have commas and colons."""


@dataclass(frozen=True, slots=True)
class ModelTask:
    """What one command is to do.

    Attributes:
        verb: which command.
        model: the file of the model; empty: the script that runs is it.
        data: files, folders or patterns.
        validate: the same, for `train`; empty: nothing is validated.
        validate_every: records of training from one evaluation to the next; 0: those of an epoch.
        best: by what one evaluation is better than another, see `read_aim`.
        patience: evaluations in a row that may be no better than the best before training stops; 0: any number.
        state: the file that training writes, and the others read.
        output: the folder of predictions, or of an export.
        output_format: of its files, and the ending of their names.
        epochs: how often each record is used.
        batch_size: records of a worker in a step.
        shard_size: records that a worker leases at a time.
        save_every: steps from one save of the state to the next.
        report_every: steps from one line to the next.
        seed: of the model's first numbers, and of the order of the data.
        bad: the share of records that may be left out because they do not fit the columns; 0: none.
        kinds: of columns where what is inferred does not fit, as of `elastic_run.data.open`.
    """

    verb: Verb
    model: str
    data: tuple[str, ...]
    validate: tuple[str, ...]
    validate_every: int
    best: str
    patience: int
    state: Path
    output: Path
    output_format: str
    epochs: int
    batch_size: int
    shard_size: int
    save_every: int
    report_every: int
    seed: int
    bad: float
    kinds: Mapping[str, str]


class VerbParser(argparse.ArgumentParser):
    """Raises where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        """Raises BadModel."""
        raise BadModel(f"{message}: {self.prog} --help lists what can be given")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _interval(text: str) -> int:
    return 0 if text == "epoch" else _count(text)


def _aim(text: str) -> str:
    try:
        read_aim(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a metric's name, NAME:max or NAME:min") from None
    return text


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {(1 << 32) - 1}")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to below 1, such as 0.001")
    return share


def _kinds(text: str) -> dict[str, str]:
    if not _KINDS.findall(text) or _KINDS.sub("", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:KIND, as age:float64,zip:str: {', '.join(KINDS)}")
    return dict(_KINDS.findall(text))


def make_parser(verb: Verb, *, named: bool = True) -> VerbParser:
    """Of one command; `named`: the model's file is among its words."""
    what = {
        "train": "Trains a model on files of records; a job that was interrupted goes on where its state ends.",
        "evaluate": "Computes a trained model's loss and metrics on files of records.",
        "predict": "Writes a trained model's outputs: a file for each shard of the records, whole or absent.",
        "export": "Writes a trained model with features as a folder whose predict.py needs torch alone.",
    }
    own = "--output=FOLDER" if verb == "export" else "--data=FILES"
    parser = VerbParser(
        prog=f"elastic-run {verb}",
        usage=f"elastic-run {verb} model.py {own} [flags] [flags of elastic-run]",
        description=what[verb],
        epilog="elastic-run --help lists the flags of elastic-run, such as --nnodes=2:8 and --nproc-per-node=4.",
        allow_abbrev=False,
    )
    if named:
        parser.add_argument("model", help="the file with the model's functions")
    add = parser.add_argument
    if verb == "export":
        add("--state", type=Path, metavar="FILE", help="what training wrote (default: MODEL.pt, here)")
        add("--output", type=Path, required=True, metavar="FOLDER", help="a new folder")
        parser.set_defaults(data=[], batch_size=1, shard_size=1, bad=0.0, kinds={})
        return parser
    add(
        "--data", action="append", required=True, metavar="FILES", help="a file, a folder or a pattern; may be repeated"
    )
    add("--state", type=Path, metavar="FILE", help="what training writes, and others read (default: MODEL.pt, here)")
    add("--batch-size", type=_count, default=64, metavar="N", help="records of each worker in a step (default: 64)")
    add("--shard-size", type=_count, metavar="N", help=f"records leased at a time (default: {BATCHES} batches)")
    add("--bad", type=_share, default=0.0, metavar="SHARE", help="of records that may be left out: 0.001 (default: 0)")
    add("--kinds", type=_kinds, default={}, metavar="NAME:KIND[,...]", help="of columns: float64, str or int64")
    if verb == "train":
        add("--validate", action="append", default=[], metavar="FILES", help="evaluate on these, beside training")
        add("--validate-every", type=_interval, default=0, metavar="RECORDS|epoch", help="how often (default: epoch)")
        add(
            "--best", type=_aim, default="loss", metavar="METRIC[:max|:min]", help="which state is kept (default: loss)"
        )
        add("--patience", type=_count, default=0, metavar="N", help="stop when N evaluations in a row are no better")
        add("--epochs", type=_count, default=1, metavar="N", help="how often each record is used (default: 1)")
        add("--save-every", type=_count, default=100, metavar="N", help="steps between two saves (default: 100)")
        add("--report-every", type=_count, default=100, metavar="N", help="steps between two lines (default: 100)")
        add("--seed", type=_seed, default=0, metavar="N", help="of the first numbers and of the order (default: 0)")
    if verb == "predict":
        add("--output", type=Path, required=True, metavar="FOLDER", help="where the files of outputs are written")
        add("--output-format", choices=FORMATS, default=FORMATS[0], help="of these files (default: csv)")
    return parser


def flags_of(verb: Verb) -> dict[str, bool]:
    """The flags of a command, and whether each takes a value."""
    found: dict[str, bool] = {}
    for action in make_parser(verb)._actions:  # pyright: ignore[reportPrivateUsage]  # argparse has no other list
        found.update(dict.fromkeys(action.option_strings, action.nargs != 0))
    return found


def read_task(words: Sequence[str], *, script: str = "") -> ModelTask:
    """What the words ask for: a command, the model's file and flags.

    Args:
        script: the model's file, where it runs itself and is not among the words.

    Raises BadModel; SystemExit for --help, which is printed.
    """
    if not words or words[0] not in VERBS:
        raise BadModel(f"say what to do: {', '.join(VERBS)}; for example train --data='train/*.parquet'")
    verb = words[0]
    given = make_parser(verb, named=not script).parse_args(list(words[1:]))
    model = script or given.model
    if verb == "train" and not given.validate and (given.patience or given.validate_every or given.best != "loss"):
        raise BadModel("--validate-every, --best and --patience go with --validate=FILES, which are evaluated")
    return ModelTask(
        verb=verb,
        model=model,
        data=tuple(given.data),
        validate=tuple(given.validate) if verb == "train" else (),
        validate_every=given.validate_every if verb == "train" else 0,
        best=given.best if verb == "train" else "loss",
        patience=given.patience if verb == "train" else 0,
        state=given.state or Path(f"{Path(model).stem}.pt"),
        output=given.output if verb in ("predict", "export") else Path(),
        output_format=given.output_format if verb == "predict" else FORMATS[0],
        epochs=given.epochs if verb == "train" else 1,
        batch_size=given.batch_size,
        shard_size=given.shard_size or BATCHES * given.batch_size,
        save_every=given.save_every if verb == "train" else 1,
        report_every=given.report_every if verb == "train" else 1,
        seed=given.seed if verb == "train" else 0,
        bad=given.bad,
        kinds=given.kinds,
    )


def check_task(task: ModelTask) -> None:
    """Looks for what is named, and reads the model's source; runs nothing of it. Raises BadModel."""
    check_model(task.model)
    for flag, files in (("data", task.data), ("validate", task.validate)):
        if any("://" in each for each in files) or not files:
            continue  # of a package's reader, which looks for itself
        try:
            find_files(files)
        except BadFiles as error:
            raise BadModel(f"--{flag}: {error}") from None
    if not task.state.absolute().parent.is_dir():
        raise BadModel(f"--state={task.state}: there is no folder {task.state.parent}: make it, or name another")
    if task.output_format == "parquet" and find_spec("pyarrow") is None:
        raise BadModel("--output-format=parquet needs pyarrow: install elastic-run[readers], or leave it out for CSV")
    if task.verb != "train" and not task.state.is_file():
        raise BadModel(
            f"there is no file {task.state}, which elastic-run train {task.model} writes: train first, or name "
            "what it has written with --state=FILE"
        )
    if task.verb == "export" and task.output.exists():
        raise BadModel(f"--output={task.output} is there already: name a new folder")
