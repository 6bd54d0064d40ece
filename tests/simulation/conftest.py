"""The count of all that was simulated in this run, and the switch that records stories anew."""

import pytest

from .explore import Tale

TALE = pytest.StashKey[Tale]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known where the command line names this folder or a file in it."""
    parser.addoption("--record", action="store_true", help="write the stories' traces anew, as they are now")


@pytest.fixture
def tale(request: pytest.FixtureRequest) -> Tale:
    """What the schedules of this run came to; the run's last lines tell it."""
    return request.config.stash.setdefault(TALE, Tale())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How many schedules and faults this run has simulated, and how long that was in the virtual world."""
    told = config.stash.get(TALE, None)
    if told is not None:
        terminalreporter.section("simulation")
        terminalreporter.line(told.text)
        terminalreporter.line(", ".join(f"{count} {verb}" for verb, count in sorted(told.faults.items())))
