"""A defect in the product is found: each of `mutants.py` breaks its rule, and the product as it is breaks none.

The defects run in other processes, so that this one keeps the product as it is.
"""

import functools
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from .explore import rule_broken
from .mutants import MUTANTS, Mutant
from .schedule import parse

ROOT = Path(__file__).resolve().parents[2]

LONG = 600
"""Seconds after which something hangs."""

PARTS = 2
"""So many processes may share this file. Defects with one schedule are in one part."""

SCHEDULES = sorted({mutant.text for mutant in MUTANTS})


def part_of(mutant: Mutant) -> int:
    """Which part of the file the defect is in."""
    return SCHEDULES.index(mutant.text) % PARTS


@functools.cache
def run_part(part: int) -> Mapping[str, Mapping[str, str]]:
    """By defect of this part: which rule its schedule breaks, and how."""
    names = [mutant.name for mutant in MUTANTS if part_of(mutant) == part]
    run = subprocess.run(
        [sys.executable, "-m", "tests.simulation.mutants", "--json", *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(lines) == len(names), run.stdout + run.stderr
    return {line["name"]: line for line in lines}


@functools.cache
def rule_broken_without_defects(schedule: str) -> tuple[str, str] | None:
    """The rule that the product as it is breaks in the schedule, and how."""
    return rule_broken(parse(schedule))


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=mutant.name, marks=pytest.mark.xdist_group(f"mutants{part_of(mutant)}"))
        for mutant in MUTANTS
    ],
)
def test_a_schedule_breaks_the_rule_with_the_defect_and_none_without_it(mutant: Mutant) -> None:
    found = run_part(part_of(mutant))[mutant.name]
    assert found["rule"] == mutant.rule, found["what"]
    assert rule_broken_without_defects(mutant.text) is None


def test_the_defects_are_many_and_each_has_a_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
