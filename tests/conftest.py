"""For all tests."""

import shutil
import signal
import tempfile

import pytest

COMPUTE = ("unit", "simulation")
"""Folders of tests that need a processor and little else."""

UNHURRIED = (
    "test_convergence",
    "test_ecosystem",
    "test_imports_ahead",
    "test_readme",
    "test_start_methods",
    "test_third_party_scripts",
)
"""Files that start processes, and in which nothing is killed or timed: they can do with what those leave over."""


ROOM = 6 * 2**30
"""Bytes: each member of etcd lays out 128 MB, and a test's folder goes when it has passed."""


def pytest_configure() -> None:
    """Shells and nohup ignore signals for what they run in the background, and so would every job of a test here."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two groups, for two processes (`make test`): tests that kill, freeze and cut run one after the other."""
    for item in items:
        aside = item.path.parent.name in COMPUTE or item.path.stem in UNHURRIED
        item.add_marker(pytest.mark.xdist_group("computes" if aside else "waits"))
    # What the simulator draws begins at once, and is done before the rest of its group needs the processors.
    items.sort(key=lambda item: item.path.parent.name != "simulation")
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < ROOM and any(item.path.parent.name not in COMPUTE for item in items):
        pytest.exit(
            f"{tempfile.gettempdir()} has {free >> 20} MB left and the tests need {ROOM >> 20}: make room there"
        )
