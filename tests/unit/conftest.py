"""Unit tests are pure and quick: each that is not fails here. And what tests of imports change in this interpreter."""

import asyncio
import gc
import os
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.elastic_agent.warm import specs

from ..doubles.virtual_loop import VirtualLoop
from ..purity import watched
from ..sampling import EXAMPLES

SECONDS = 1.0
"""Of this process's time, for a test and what is set up for it. Time on the wall would tell of the machine's load."""

CROWDED = 2.0
"""Processes that run for each core beyond which time tells of them and not of the test: caches and cores are shared."""

WALL_SECONDS = 30.0
"""Of time on the wall: a test that waits for something that is not forbidden takes no time of the processor."""

BEGAN = pytest.StashKey[tuple[float, float]]()

READ = pytest.StashKey[int]()
"""How many modules were there when Hypothesis last read their constants: it looks again at another number."""


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """No unit test waits for real time, and one that would wait for ever fails."""
    return {"virtual": VirtualLoop}


@settings(max_examples=2, database=None)
@given(st.text(), st.lists(st.integers(), min_size=200, max_size=200))
def generate_values(_text: str, _integers: list[int]) -> None:
    """What Hypothesis does once: it reads the characters of Unicode, and the constants of all modules that are new.

    It reads those for one value in twenty that it draws, and draws none for the first example, the simplest.
    """


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is done once for all tests costs none of them its second: so with the garbage of importing them all."""
    generate_values()
    session.stash[READ] = len(sys.modules)
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """What a test module does while it is imported is seen, too."""
    with watched() as found:
        report = yield
    assert not found, found[0]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Begins to count the test's time, when what earlier tests have imported is read."""
    if item.session.stash[READ] != len(sys.modules):
        generate_values()
        item.session.stash[READ] = len(sys.modules)
    item.stash[BEGAN] = time.process_time(), time.monotonic()
    with watched() as found:
        yield
    assert not found, found[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """The test passes only where it was pure, and quick with the few examples of the inner loop."""
    with watched() as found:
        yield
    assert not found, found[0]
    if EXAMPLES is not None or os.getloadavg()[0] > CROWDED * (os.cpu_count() or 1):
        return
    processor, wall = item.stash[BEGAN]
    used, waited = time.process_time() - processor, time.monotonic() - wall
    if used > SECONDS or waited > WALL_SECONDS:
        bound = f"under {SECONDS:g} s of a processor and {WALL_SECONDS:g} s on the wall"
        pytest.fail(f"a unit test takes {bound}, and this one took {used:.1f} s and {waited:.1f} s", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None]:
    """So it is for what ends its fixtures; after the last test of all, those end that other tests have shared."""
    if nextitem is None:
        yield
        return
    with watched() as found:
        yield
    assert not found, found[0]


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
    specs.end()  # whoever is left there
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
