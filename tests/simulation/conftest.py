"""The count of all that was simulated in this run."""

import pytest

from .explore import Tale

COUNTS = "schedules"
"""A property of a test's report: the fields of the `Tale` of its schedules."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many schedules and faults all processes of this run have simulated."""
    total = Tale()
    for report in (*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())):
        for name, counts in report.user_properties:
            if name == COUNTS and report.when == "call":
                total.add(Tale(**counts))
    if total.schedules:
        terminalreporter.section("simulation")
        terminalreporter.line(total.text)
        terminalreporter.line(", ".join(f"{count} {verb}" for verb, count in sorted(total.faults.items())))
