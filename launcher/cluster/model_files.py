"""A model in four functions on its way into a cluster: its file and those beside it travel in a ConfigMap."""

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...adapters.models.commands import VERBS, read_task
from ...adapters.models.errors import BadModel
from ...adapters.models.model_source import check_model
from ...master.nodes.kubernetes import objects
from ...master.nodes.kubernetes.model_volume import MODEL_FOLDER, name_model
from ...master.nodes.kubernetes.objects import Json, Request
from ...rendezvous.base.frozen import dataclass
from ..errors import UsageError
from ..model_job import MODULE

LARGEST = 1 << 20
"""Bytes of a ConfigMap, with the names."""

ENDINGS = (".py", ".json", ".toml", ".yaml", ".yml")
"""Of files that travel with a model's."""


@dataclass(frozen=True, slots=True)
class ModelCommand:
    """What the pods run.

    Attributes:
        name: of the model's file, without its ending.
        flags, command: of `elastic-run`.
        files: what stands in `MODEL_FOLDER` there, by name.
    """

    name: str
    flags: Sequence[str]
    command: Sequence[str]
    files: Mapping[str, bytes]


def trains_model(command: Sequence[str]) -> bool:
    """Whether that is `train model.py ...`, and no script of such a name (pure)."""
    return bool(command) and command[0] in VERBS


def pack_model(flags: Sequence[str], command: Sequence[str]) -> ModelCommand:
    """The same command for pods, which have the files of this folder elsewhere. Raises UsageError."""
    try:
        task = read_task(command)
        check_model(task.model)
    except BadModel as error:
        raise UsageError(f"elastic-job submit: {error}") from None
    for flag, file in (("state", task.state), *([("output", task.output)] if task.output != Path() else [])):
        if not file.is_absolute():
            raise UsageError(
                f"elastic-job submit: --{flag} has to name a place that all pods see, from /: a volume that "
                f"--pod-template=FILE mounts, such as --{flag}=/shared/{file.name or 'out'}"
            )
    if list(command).count(task.model) != 1:
        raise UsageError(f"elastic-job submit: write values behind =, as in --data={task.model}")
    model = Path(task.model)
    there = [f"{MODEL_FOLDER}/{model.name}" if word == task.model else word for word in command]
    ahead = [] if any(word.startswith("--preload") for word in flags) else ["--preload=torch"]
    return ModelCommand(model.stem, [*flags, *ahead, "--module"], [MODULE, *there], _read_files(model))


def model_map(request: Request, owner: Json) -> Json:
    """The files of the job's model (pure). `owner`: as for `objects.config_map`."""
    name, labels = name_model(request.name), objects.labels(request.name, "model")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels, **objects.owned(owner)},
        "binaryData": {name: base64.b64encode(content).decode() for name, content in request.model.items()},
    }


def _read_files(model: Path) -> dict[str, bytes]:
    """The model's file and those beside it, by name. Raises UsageError."""
    paths = [path for path in sorted(model.parent.iterdir()) if path.suffix in ENDINGS and path.is_file()]
    paths = [path for path in paths if not path.name.startswith(".")]
    sizes = {path.name: path.stat().st_size + len(path.name) for path in (*paths, model)}
    if (size := sum(sizes.values())) > LARGEST:
        largest = max(sizes, key=sizes.__getitem__)
        raise UsageError(
            f"elastic-job submit: {model} and the files {', '.join(f'*{each}' for each in ENDINGS)} beside it have "
            f"{size:,} bytes, and {LARGEST:,} go into a ConfigMap; the largest is {largest}: move the model into a "
            "folder of its own"
        )
    if odd := next((name for name in sizes if not re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", name)), ""):
        raise UsageError(f"elastic-job submit: no ConfigMap has a file named {odd!r}: rename it, or move it elsewhere")
    return {path.name: path.read_bytes() for path in (*paths, model)}
