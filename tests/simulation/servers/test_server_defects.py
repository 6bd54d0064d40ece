"""Each defect of `server_defects.py` breaks its rule in its schedule, and the product as it is breaks none there."""

import functools
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from .server_defects import SERVER_DEFECTS, ServerDefect
from .server_job import ServerJob
from .server_schedules import draw_schedule

ROOT = Path(__file__).resolve().parents[3]

LONG = 600
"""Seconds after which something hangs."""

pytestmark = pytest.mark.xdist_group("server defects")


@functools.cache
def run_defects() -> Mapping[str, Mapping[str, str]]:
    """By defect: which rule its seed breaks, and how. In another process, which it changes."""
    command = [sys.executable, "-m", "tests.simulation.servers.server_defects", "--json"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONG, check=False)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(lines) == len(SERVER_DEFECTS), run.stdout + run.stderr
    return {line["name"]: line for line in lines}


@functools.cache
def rule_broken_without(seed: int) -> str:
    """By the product as it is."""
    return str(ServerJob(draw_schedule(seed)).run() or "")


@pytest.mark.slow
@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("defect", SERVER_DEFECTS, ids=lambda defect: defect.name)
def test_a_seed_breaks_the_rule_of_servers_with_the_defect_and_none_without_it(defect: ServerDefect) -> None:
    found = run_defects()[defect.name]
    assert found["rule"] == defect.rule, found["what"]
    assert rule_broken_without(defect.seed) == ""


def test_the_defects_of_servers_are_many_and_each_has_a_name() -> None:
    assert len({defect.name for defect in SERVER_DEFECTS}) == len(SERVER_DEFECTS) >= 20
