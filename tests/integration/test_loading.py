"""What loads what, in fresh interpreters; and what needs a framework: its public names, and torch's own parser."""

import argparse
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed.run as run

from elastic_run.launcher.options.flags import FLAGS

from ..house.sources import ROOT, product
from ..house.surface import (
    DOCUMENTED,
    MEMBERS,
    NAMES,
    SURFACE,
    check_class,
    check_classes,
    check_docstrings,
    check_module,
    loaded,
    with_frameworks,
)

SOURCE = ROOT / "src"
FRAMEWORKS = {"torch", "tensorflow", "horovod", "jax", "xgboost"}
IN_A_CLUSTER = ("master_pod.py", "operator.py", "unstarted.py")
"""Modules of the launcher that are imported where there is a cluster only."""

INTERNAL = {
    "elastic_run.adapters.client.shard_plan.PiecesMissing": "caught where shards are read, which names the parameter",
    "elastic_run.adapters.servers.errors.RecordsRefused": "caught in a server: the answer says it",
    "elastic_run.adapters.torch.process_group.Superseded": "caught where a process group is formed",
    "elastic_run.master.data.stored_ledger.BadState": "the master's: what its store holds",
    "elastic_run.torch.HostsUpdated": "no error: `run` catches it",
}
"""Exceptions of the folders that scripts load which are none of the documented errors, and why."""


# -- fresh interpreters -----------------------------------------------------------------------------------------------


def module_of(path: Path) -> str:
    """The name by which a file of the product is imported."""
    return ".".join(("elastic_run", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def modules_of(*rooms: str) -> list[str]:
    """The modules below these folders of the product; without any, all of it.

    What Python's own start-up looks for is no module of the package: it runs in a warm interpreter only.
    """
    files = [path for path in product() if not rooms or path.relative_to(ROOT).parts[0] in rooms]
    return [module_of(path) for path in files if path.name != "sitecustomize.py"]


LAUNCHER = [name for name in modules_of("launcher") if f"{name.rpartition('.')[2]}.py" not in IN_A_CLUSTER]

PACKAGE = (["elastic_run"], {"grpc", "google.protobuf", "torch", "psutil", "numpy", "tensorflow", "jax", "asyncio"})
ERRORS = (
    ["elastic_run.exceptions"],
    {"torch", "asyncio", "grpc", "elastic_run.launcher.launch", "elastic_run.elastic_agent"},
)
DECIDERS = (
    [
        "elastic_run.rendezvous.round",
        "elastic_run.rendezvous.ranks",
        "elastic_run.master.machine.incident",
        "elastic_run.master.machine.controller",
        "elastic_run.elastic_agent.machine.plan",
    ],
    {"asyncio", "socket", "grpc", "google.protobuf", "psutil"},
)
MEMORY_STORE = (["elastic_run.rendezvous.store.memory_store"], {"grpc", "google.protobuf", "psutil"})
COMMAND_LINE = (LAUNCHER, FRAMEWORKS | {"kubernetes"})
"""What an interpreter imports, and what must not have been loaded by then."""

LOAD = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
for names in json.loads(sys.argv[2]):
    for name in names:
        importlib.import_module(name)
    if names == ["elastic_run.exceptions"]:
        assert sys.modules["elastic_run"].LaunchFailed
    if names == ["elastic_run"]:
        assert sys.modules["elastic_run"].__version__
    print(json.dumps({name: getattr(module, "__file__", None) for name, module in sys.modules.items()}))
"""


def load(*stages: list[str]) -> list[dict[str, str | None]]:
    """The modules, with their files, that a fresh interpreter has loaded after each stage."""
    command = [sys.executable, "-c", LOAD, str(SOURCE), json.dumps(stages)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"sys"')]


@pytest.mark.parametrize("stages", [(PACKAGE, ERRORS), (DECIDERS, MEMORY_STORE, COMMAND_LINE)], ids=["script", "job"])
def test_each_part_loads_no_more_than_it_needs(stages: tuple[tuple[list[str], set[str]], ...]) -> None:
    """The package and its errors load nothing heavy, what decides no loop and no wire, the launcher no framework."""
    after = load(*(names for names, _ in stages))
    assert len(after) == len(stages)
    for (names, heavy), modules in zip(stages, after, strict=True):
        assert set(names) <= set(modules)
        assert set(modules) & heavy == set(), names[0]


def test_no_file_of_ours_is_loaded_under_two_names() -> None:
    names = modules_of()
    (modules,) = load(names)
    files: dict[Path, list[str]] = {}
    for name, file in modules.items():
        found = Path(file).resolve() if file else ROOT.parent
        if found.is_relative_to(ROOT) and "site-packages" not in found.parts:  # `make` has its environment in here
            files.setdefault(found, []).append(name)
    assert {file: found for file, found in files.items() if len(found) > 1} == {}
    assert set(names) <= {name for found in files.values() for name in found}


# -- names that load a framework --------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", with_frameworks(SURFACE))
def test_the_public_names_of_a_module_of_a_framework_are_those_that_are_listed(module: str) -> None:
    check_module(module)
    for path in MEMBERS:
        if path.startswith(f"{module}."):
            check_class(path)
    for path in DOCUMENTED:
        if path == module or path.startswith(f"{module}."):
            check_docstrings(path)


def test_every_public_class_of_a_framework_is_in_the_list_of_members() -> None:
    check_classes(with_frameworks(NAMES), with_frameworks(MEMBERS))


def test_every_error_that_a_script_may_meet_is_public() -> None:
    found: dict[str, type[BaseException]] = {}
    for folder in (
        "adapters.client",
        "adapters.features.errors",
        "adapters.models.errors",
        "adapters.readers.errors",
        "adapters.servers.errors",
        "adapters.streams.contract",
        "adapters.torch",
        "master.data",
        "launcher.errors",
        "launcher.launch",
    ):
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


# -- torch's own parser -----------------------------------------------------------------------------------------------


def test_the_parser_has_torchs_own_flags_spellings_choices_and_mirrors(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [variable for variable in os.environ if variable.startswith("PET_")]:
        monkeypatch.delenv(variable)
    theirs: dict[str, tuple[set[str], bool, tuple[str, ...], bool]] = {}
    # argparse has no public way to list what a parser knows.
    for action in run.get_args_parser()._actions:
        if not action.option_strings or isinstance(action, argparse._HelpAction):  # pyright: ignore[reportPrivateUsage]
            continue
        mirrored = type(action).__name__ in ("env", "check_env")
        theirs[action.dest] = (set(action.option_strings), action.nargs == 0, tuple(action.choices or ()), mirrored)
    installed = tuple(map(int, torch.__version__.split(".")[:2]))
    since = {
        "log-line-prefix-template": (2, 14),
        "print-completion": (2, 14),
    }  # newer than the torch that is tested with
    ours = {
        flag.name.replace("-", "_"): (set(flag.spellings), not flag.metavar, flag.choices, bool(flag.mirror))
        for flag in FLAGS
        if flag.torchrun and since.get(flag.name, installed) <= installed
    }
    assert ours == theirs
