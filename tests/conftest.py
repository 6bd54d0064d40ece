"""For all tests."""

import signal

import pytest


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
    """With several processes (`pytest -n 2 --dist loadgroup`), tests on real processes keep to one for each file."""
    for item in items:
        if item.path.parent.name not in ("unit", "simulation"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
