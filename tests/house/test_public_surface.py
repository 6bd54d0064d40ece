"""What scripts may import: the whole list, what stands behind each name, and the names of earlier versions."""

import builtins
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import elastic_run

PACKAGE = Path(next(iter(elastic_run.__path__)))
ROOT = PACKAGE.resolve().parents[1]

SURFACE = {
    "elastic_run": [
        "Context",
        "LaunchFailed",
        "Rounds",
        "__version__",
        "compat",
        "context",
        "data",
        "exceptions",
        "is_current_round",
        "jax",
        "launch",
        "rounds",
        "tensorflow",
        "torch",
        "trace",
        "xgboost",
    ],
    "elastic_run.compat": ["elastic_launch"],
    "elastic_run.data": ["Part", "Shard", "Shards", "shards"],
    "elastic_run.exceptions": [
        "AgentGone",
        "AgentTimeout",
        "BadCheckpoint",
        "BadDataset",
        "BadEnvironment",
        "BadSampler",
        "BadSamplerState",
        "BadShardsState",
        "ElasticRunError",
        "LaunchFailed",
        "NoAgent",
        "NoLedger",
        "ProcessGroupExists",
        "RanksDiffer",
        "RoundOver",
        "SamplerError",
        "SamplerMisused",
        "ShardsError",
        "ShardsMisused",
        "ShardsNotDone",
        "ShardsRefused",
        "StateLost",
        "UnsupportedState",
        "UsageError",
        "WorldSizeRefused",
    ],
    "elastic_run.jax": ["initialize"],
    "elastic_run.tensorflow": ["Checkpoint", "Records", "ShardsDataset", "shards_dataset"],
    "elastic_run.torch": [
        "Attempt",
        "Checkpoint",
        "ElasticBatchSampler",
        "ElasticIterableDataset",
        "ElasticLoader",
        "HostsUpdated",
        "Records",
        "State",
        "run",
    ],
    "elastic_run.trace": ["mark", "span"],
    "elastic_run.xgboost": ["communicator_args"],
}
"""Everything public, by module: what is added here is promised."""

MEMBERS = {
    "elastic_run.Context": [
        "job_id",
        "local_rank",
        "local_world_size",
        "node",
        "rank",
        "restart_count",
        "round",
        "world_size",
    ],
    "elastic_run.Rounds": [
        "alone",
        "broken",
        "close",
        "done",
        "formed",
        "next",
        "over",
        "planned",
        "register_sockets",
        "report_state",
        "standby",
    ],
    "elastic_run.compat.elastic_launch": [],
    "elastic_run.data.Part": [],
    "elastic_run.data.Shard": [
        "done",
        "epoch",
        "file",
        "index",
        "indices",
        "key",
        "number",
        "offset",
        "progress",
        "start",
        "stop",
    ],
    "elastic_run.data.Shards": ["close", "flush", "load_state_dict", "mark", "part", "state_dict"],
    "elastic_run.tensorflow.Checkpoint": ["callback", "commit", "restore", "save", "step"],
    "elastic_run.tensorflow.Records": ["epoch", "file", "indices", "key", "number", "offset", "start", "stop"],
    "elastic_run.tensorflow.ShardsDataset": [
        "commit",
        "dataset",
        "distributed",
        "load_state_dict",
        "most_steps",
        "state_dict",
    ],
    "elastic_run.torch.Attempt": [],
    "elastic_run.torch.Checkpoint": ["commit", "restore", "save", "step"],
    "elastic_run.torch.ElasticBatchSampler": [
        "accumulate",
        "commit",
        "dropped",
        "epoch",
        "load_state_dict",
        "remaining",
        "repeated",
        "state_dict",
        "step",
        "weight",
        "weights",
    ],
    "elastic_run.torch.ElasticIterableDataset": ["commit", "load_state_dict", "loader", "state_dict"],
    "elastic_run.torch.ElasticLoader": ["commit", "load_state_dict", "state_dict"],
    "elastic_run.torch.Records": ["epoch", "file", "indices", "key", "number", "offset", "start", "stop"],
    "elastic_run.torch.State": [
        "attempts",
        "check_host_updates",
        "commit",
        "context",
        "ddp",
        "register_reset_callbacks",
        "restore",
        "step",
        "sync",
    ],
}
"""What each public class has, beside what it inherits from others' classes and what only its instances have."""

FORMER = {
    "Membership": "Rounds",
    "Shard": "data.Shard",
    "Shards": "data.Shards",
    "World": "Context",
    "elastic_launch": "compat.elastic_launch",
    "is_current": "is_current_round",
    "mark": "trace.mark",
    "membership": "rounds",
    "shards": "data.shards",
    "span": "trace.span",
    "world": "context",
}

INTERNAL = {
    "elastic_run.adapters.torch.process_group.Superseded": "caught where a process group is formed",
    "elastic_run.master.data.ledger.BadState": "the master's: what its store holds",
    "elastic_run.torch.HostsUpdated": "no error: `run` catches it",
}
"""Exceptions of the folders that scripts load which are none of the documented errors, and why."""

NAMES = [f"{module}.{name}" for module, names in SURFACE.items() for name in names]


def loaded(path: str) -> Any:  # Any: whatever has that name
    """The module, or what a module has, of that name."""
    if path in SURFACE:
        if path in ("elastic_run.tensorflow", "elastic_run.torch"):
            pytest.importorskip(path.partition(".")[2])
        return importlib.import_module(path)
    module, _, name = path.rpartition(".")
    return getattr(loaded(module), name)


def ours(found: type, name: str) -> bool:
    """Whether a class of this package, and none of torch's or of Python's, has defined this member."""
    return any(name in vars(kind) for kind in found.__mro__ if kind.__module__.startswith("elastic_run"))


def documented(path: str) -> dict[str, str]:
    """The docstrings of a name and of its members."""
    found = loaded(path)
    members = [name for name in MEMBERS.get(path, []) if callable(getattr(found, name, None))]
    members += [name for name in MEMBERS.get(path, []) if isinstance(vars(found).get(name), property)]
    return {path: found.__doc__ or "", **{f"{path}.{name}": getattr(found, name).__doc__ or "" for name in members}}


@pytest.mark.parametrize("module", SURFACE)
def test_dir_lists_the_public_names_and_no_others(module: str) -> None:
    found: ModuleType = loaded(module)
    assert dir(found) == SURFACE[module] == sorted(found.__all__)
    assert found.__doc__


@pytest.mark.parametrize("path", MEMBERS)
def test_a_class_has_the_public_members_and_no_others(path: str) -> None:
    found = loaded(path)
    assert [name for name in dir(found) if not name.startswith("_") and ours(found, name)] == MEMBERS[path]


def test_every_public_class_is_in_the_list_of_members() -> None:
    pytest.importorskip("torch")
    classes = {path for path in NAMES if isinstance(loaded(path), type) and not issubclass(loaded(path), BaseException)}
    assert classes == set(MEMBERS)


@pytest.mark.parametrize("path", [path for path in NAMES if not path.endswith("__version__")])
def test_every_public_name_has_a_docstring_with_the_public_paths_of_its_errors(path: str) -> None:
    errors = "|".join([*SURFACE["elastic_run.exceptions"], "HostsUpdated"])
    for name, text in documented(path).items():
        assert text, name
        if path in SURFACE or path.startswith("elastic_run.exceptions"):
            continue
        bare = re.findall(rf"(?<![\w.`])(?:{errors})\b", text)
        assert not bare, f"{name} names {bare} without the path"
        for raised in re.findall(r"^ +((?:\w+\.)*\w+): ", text.partition("Raises:")[2], re.MULTILINE):
            kind = loaded(raised) if "." in raised else getattr(builtins, raised)
            assert issubclass(kind, BaseException), raised


def test_the_page_has_every_public_name_and_no_others() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(elastic_run[\w.]*)` \|", page, re.MULTILINE))
    errors = set(re.findall(r"^\| `([A-Z]\w+)` \|", page, re.MULTILINE))
    assert errors == set(SURFACE["elastic_run.exceptions"])
    assert named - {"elastic_run.exceptions"} == {
        path for path in NAMES if path not in SURFACE and not path.startswith("elastic_run.exceptions.")
    }


def test_the_page_says_which_of_pythons_own_each_error_is() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    for name, base in re.findall(r"^\| `([A-Z]\w+)` \| (?:`(\w+)`)? ?\|", page, re.MULTILINE):
        kind = loaded(f"elastic_run.exceptions.{name}")
        own = [each.__name__ for each in kind.__bases__ if each.__module__ == "builtins"]
        assert own == ([base] if base else []), name


@pytest.mark.parametrize("name", SURFACE["elastic_run.exceptions"])
def test_every_error_derives_from_the_base_and_shows_its_public_path(name: str) -> None:
    kind = loaded(f"elastic_run.exceptions.{name}")
    assert issubclass(kind, elastic_run.exceptions.ElasticRunError) and issubclass(kind, Exception)
    assert f"{kind.__module__}.{kind.__qualname__}" == f"elastic_run.exceptions.{name}"


def test_every_error_that_a_script_may_meet_is_public() -> None:
    pytest.importorskip("torch")
    found: dict[str, type[BaseException]] = {}
    for folder in ("adapters.client", "adapters.torch", "master.data", "launcher.errors", "launcher.launch"):
        package = importlib.import_module(f"elastic_run.{folder}")
        inner = [name for _, name, _ in pkgutil.iter_modules(getattr(package, "__path__", []), f"{package.__name__}.")]
        for module in (package, *map(importlib.import_module, inner)):
            for kind in vars(module).values():
                if isinstance(kind, type) and issubclass(kind, BaseException) and "elastic_run" in kind.__module__:
                    found[f"{kind.__module__}.{kind.__qualname__}"] = kind
    public = {f"elastic_run.exceptions.{name}" for name in SURFACE["elastic_run.exceptions"]}
    assert public <= found.keys()
    wire = {name for name in found if name.startswith("elastic_run.rendezvous.")}
    assert found.keys() - public - wire == set(INTERNAL)


def test_a_script_that_catches_errors_lets_a_planned_change_by() -> None:
    assert not issubclass(loaded("elastic_run.torch.HostsUpdated"), Exception)


def test_the_errors_load_no_framework_and_no_launcher() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); import elastic_run.exceptions; "
        "assert elastic_run.LaunchFailed; print(sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    for module in ("torch", "asyncio", "grpc", "elastic_run.launcher.launch", "elastic_run.elastic_agent"):
        assert f"'{module}'" not in done.stdout


@pytest.mark.parametrize("name", FORMER)
def test_names_of_earlier_versions_go_on_working_and_are_not_listed(name: str) -> None:
    module, _, new = FORMER[name].rpartition(".")
    assert getattr(elastic_run, name) is loaded(".".join(filter(None, ("elastic_run", module, new))))
    assert name not in dir(elastic_run)


def test_members_of_earlier_versions_go_on_working() -> None:
    alone = elastic_run.Rounds({})
    place = alone.place
    assert place == elastic_run.Context(0, 1, 0, 1, 0, 0, 0, "") and (place.size, place.local_size) == (1, 1)
    assert not alone.unplaced and alone.holds == alone.report_state and alone.hold == alone.register_sockets
    shard = next(elastic_run.data.shards("data", 100, shard_size=10))
    assert shard.place == shard.index == 0
    for found in (alone, place, shard):
        with pytest.raises(AttributeError, match="'nonsense'"):
            _ = found.nonsense


def test_a_state_of_earlier_versions_goes_on_working(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "ELASTIC_RUN_AGENT"):
        monkeypatch.delenv(name, raising=False)
    state, called = elastic_run.torch.State(steps=0), list[int]()

    @state.on_reset
    def callback() -> None:
        called.append(1)

    state.register_reset_callbacks([lambda: called.append(2)])
    state._reset()
    assert called == [1, 2] and callable(callback)
    assert state.place == state.context == elastic_run.context()


def test_the_former_module_for_pytorch_goes_on_working() -> None:
    pytest.importorskip("torch")
    from elastic_run.adapters import pytorch

    for name in (*SURFACE["elastic_run.torch"], "StateLost"):
        assert getattr(pytorch, name) is getattr(elastic_run.torch, name)


def test_no_page_and_no_example_has_a_name_of_an_earlier_version() -> None:
    old = re.compile(rf"elastic_run\.(?:{'|'.join(FORMER)})\b|adapters\.pytorch")
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.py")]
    found = {
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in files
        for line in file.read_text(encoding="utf-8").splitlines()
        if old.search(line)
    }
    assert found == set()


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'elastic_run' has no attribute 'nonsense'"):
        _ = elastic_run.nonsense


def test_the_context_is_frozen() -> None:
    with pytest.raises(AttributeError):
        elastic_run.context({}).rank = 1
