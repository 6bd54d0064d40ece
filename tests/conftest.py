"""For all tests."""

import os
import secrets
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something of the machine's load, and nothing of the code.
settings.register_profile("elastic-run", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("elastic-run")

TESTS = Path(__file__).parent

COMPUTE = ("house", "simulation", "unit")
"""Folders of tests that need a processor and little else."""

ROOM = 6 * 2**30
"""Bytes: each member of etcd lays out 128 MB, and a test's folder goes when it has passed."""


CONFIGURATION = "XDG_CONFIG_HOME"
"""Where the secret of the user lies under whom the tests run: not the developer's own."""


SEED = "ELASTIC_RUN_SEED"
"""The seed of this run: it draws the schedules, faults and cases that stand for all of them."""

# Set before any module of tests is imported, and inherited by pytest-xdist's processes.
os.environ.setdefault(SEED, str(secrets.randbelow(10**6)))
os.environ.setdefault("PYTEST_TIMEOUT", "300")

LONG, MANY = 4000, 100
"""Characters, and lines or items, of a value beyond which a failed comparison is told without a diff, which may take
hours to make."""

LONG_RUN = 120.0
"""Seconds of tests after which a run says what they went into."""

SHOWN = 200
"""Characters of each value before and after the first difference."""


@pytest.hookimpl(tryfirst=True)
def pytest_assertrepr_compare(op: str, left: object, right: object) -> None:
    """Fails at once where a value is long: pytest's own hook, which comes after this one, would make a diff of it."""
    __tracebackhide__ = True
    if op != "==":
        return
    texts = [each if isinstance(each, str) else repr(each) for each in (left, right)]
    sizes = [each.count("\n") for each in texts]
    sizes += [len(each) for each in (left, right) if isinstance(each, Collection) and not isinstance(each, str | bytes)]
    if max(map(len, texts)) <= LONG and max(sizes) <= MANY:
        return
    pairs = enumerate(zip(*texts, strict=False))
    at = next((index for index, (one, other) in pairs if one != other), min(map(len, texts)))
    first, second = (f"{text[max(0, at - SHOWN) : at + SHOWN]!r} of {len(text)} characters" for text in texts)
    raise AssertionError(f"the values differ first at character {at}:\n  {first}\n  {second}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """One switch for everything that is recorded: the transcripts, and the simulator's stories."""
    parser.addoption("--record", action="store_true", help="write transcripts and stories anew, as they are now")


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the run cost, file by file, and how to run the same cases again."""
    seconds = Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if seconds.total() > LONG_RUN:
        terminalreporter.section("seconds by file")
        for file, total in seconds.most_common():
            if total >= 1:
                terminalreporter.write_line(f"{total:8.1f}  {file}")
    terminalreporter.write_line(f"schedules, faults and cases were drawn with {SEED}={os.environ[SEED]}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts first what takes long, and refuses to begin where the disk is nearly full."""
    # What the simulator draws needs a processor for minutes: it is not what all wait for at the end.
    items.sort(key=lambda item: item.path.parent.name != "simulation")
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < ROOM and any(item.path.relative_to(TESTS).parts[0] not in COMPUTE for item in items):
        pytest.exit(
            f"{tempfile.gettempdir()} has {free >> 20} MB left and the tests need {ROOM >> 20}: make room there"
        )
