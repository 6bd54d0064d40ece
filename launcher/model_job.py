"""`elastic-run train model.py --data=... --nnodes=2:8` as the job that it stands for.

The job's command is our own module `elastic_run.models`, and the model is its argument. What the job does is the
affair of `adapters/models/`.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from ..adapters.models import zoo_files
from ..adapters.models.commands import Verb, check_task, flags_of, make_parser, read_task
from ..adapters.models.errors import BadModel
from .errors import UsageError
from .options import flags

MODULE = "elastic_run.models"

USAGE = f"""elastic-run new NAME > model.py

Prints a model to begin with. NAME: {", ".join(zoo_files.list_names())}.
"""


def job_words(words: Sequence[str]) -> list[str]:
    """The command line of `elastic-run` for a command that trains, evaluates or predicts.

    Raises:
        UsageError: it cannot be run, as far as files and the model's source tell.
        SystemExit: `--help` was asked for and has been printed.
    """
    verb = cast("Verb", words[0])
    if {"-h", "--help"} & set(words):
        make_parser(verb).print_help()
        raise SystemExit(0)
    own, others = split_flags(words[1:], flags_of(verb))
    others = [word for word in others if word != "--"]  # nothing of the model's own would follow it
    scanned = flags.scan(others, {})
    model, *after = scanned.command or ("",)
    if not model:
        raise UsageError(f"no model is named: write elastic-run {verb} model.py --data='data/*.parquet'")
    before = others[: len(others) - 1 - len(after)]
    late = flags.scan(after, {})
    for name in ("module", "no-python"):
        if given := scanned.given.get(name) or late.given.get(name):
            raise UsageError(f"{given.source} is not for elastic-run {verb}, whose model is a file: write model.py")
    if late.command:
        raise UsageError(f"{late.command[0]!r} follows {model}, and is no flag: elastic-run {verb} takes one model")
    try:
        check_task(read_task([verb, model, *own]))
    except BadModel as error:
        raise UsageError(str(error)) from None
    ahead = [] if scanned.has("preload") or late.has("preload") else ["--preload=torch"]
    return [*before, *after, *ahead, "-m", MODULE, verb, model, *own]


def split_flags(words: Sequence[str], known: dict[str, bool]) -> tuple[list[str], list[str]]:
    """The words that are flags of the command, with their values, and all others (pure).

    Args:
        known: its flags, and whether each takes a value.
    """
    own, others = list[str](), list[str]()
    left = list(words)
    while left:
        word = left.pop(0)
        name, attached, _ = word.partition("=")
        if name not in known:
            others.append(word)
            continue
        own.append(word)
        if known[name] and not attached and left:
            own.append(left.pop(0))
    return own, others


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """`elastic-run new NAME`: prints a model file to begin with. Raises UsageError."""
    names = zoo_files.list_names()
    if len(words) != 1 or words[0].replace("-", "_") not in names:
        raise UsageError(f"elastic-run new NAME > model.py: NAME is one of {', '.join(names)}")
    print(zoo_files.read_model(words[0].replace("-", "_")), end="")
    return 0
