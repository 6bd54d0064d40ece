"""For all tests."""

import shutil
import signal
import tempfile

import pytest

COMPUTE = ("unit", "simulation")
"""Folders of tests that need a processor and little else."""

ONE_AT_A_TIME = {"cluster": "kubernetes", "test_slurm": "slurm"}
"""Folders and files whose tests each have a whole cluster: one process takes all of them."""

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


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For `--dist loadgroup`: what has no group is taken test by test."""
    for item in items:
        if group := ONE_AT_A_TIME.get(item.path.parent.name) or ONE_AT_A_TIME.get(item.path.stem):
            item.add_marker(pytest.mark.xdist_group(group))
    # What the simulator draws needs a processor for minutes: it is not what all wait for at the end.
    items.sort(key=lambda item: item.path.parent.name != "simulation")
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < ROOM and any(item.path.parent.name not in COMPUTE for item in items):
        pytest.exit(
            f"{tempfile.gettempdir()} has {free >> 20} MB left and the tests need {ROOM >> 20}: make room there"
        )
