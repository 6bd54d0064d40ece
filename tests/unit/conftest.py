"""What tests of imports change in this very interpreter, and how it is put back."""

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elastic_run.elastic_agent.warm import specs


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[Path]:
    """A folder first on `sys.path`, for packages to be imported; at the end the interpreter is as it was."""
    folder = tmp_path / "packages"
    folder.mkdir()
    lists: list[list[Any]] = [sys.path, sys.meta_path, sys.path_hooks]
    before = [list(listed) for listed in lists]
    looked = set(sys.path_importer_cache)
    modules, environment, cwd = dict(sys.modules), dict(os.environ), Path.cwd()
    tracing, profiling = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.path.insert(0, str(folder))
    with warnings.catch_warnings():
        yield folder
    for look in list(specs._looks):  # type: ignore[attr-defined]  # whoever is left there
        specs.remove(look)
    os.chdir(cwd)
    sys.settrace(tracing)
    sys.setprofile(profiling)
    for listed, held in zip(lists, before, strict=True):
        listed[:] = held
    for found in set(sys.path_importer_cache) - looked:
        del sys.path_importer_cache[found]
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]
    sys.modules.update(modules)
    os.environ.clear()
    os.environ.update(environment)


def write(folder: Path, **sources: str) -> None:
    """Writes modules: `write(folder, name="x = 1", pkg__init="", pkg__sub="")`; two underscores are a slash."""
    for name, source in sources.items():
        parts = [f"__{part}__" if part in ("init", "main") else part for part in name.split("__")]
        file = folder.joinpath(*parts).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
