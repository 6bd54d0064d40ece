"""For all tests."""

import os
import shutil
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something of the machine's load, and nothing of the code.
settings.register_profile("elastic-run", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("elastic-run")

COMPUTE = ("unit", "simulation")
"""Folders of tests that need a processor and little else."""

ROOM = 6 * 2**30
"""Bytes: each member of etcd lays out 128 MB, and a test's folder goes when it has passed."""


CONFIGURATION = "XDG_CONFIG_HOME"
"""Where the secret of the user lies under whom the tests run: not the developer's own."""


def pytest_configure() -> None:
    """What every job of a test inherits of this process: a secret of the tests' own, and all signals.

    Shells and nohup ignore signals for what they run in the background, and so would every job here.
    """
    os.environ[CONFIGURATION] = tempfile.mkdtemp(prefix="elastic-run-tests-")
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_unconfigure() -> None:
    """The secret goes with the tests."""
    shutil.rmtree(os.environ[CONFIGURATION], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts first what takes long, and refuses to begin where the disk is nearly full."""
    # What the simulator draws needs a processor for minutes: it is not what all wait for at the end.
    items.sort(key=lambda item: item.path.parent.name != "simulation")
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < ROOM and any(item.path.parent.name not in COMPUTE for item in items):
        pytest.exit(
            f"{tempfile.gettempdir()} has {free >> 20} MB left and the tests need {ROOM >> 20}: make room there"
        )
