"""A defect in the product is found: each of `mutants.py` breaks its rule, and the product as it is breaks none.

The defects run in another process, which has not imported the product.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from .explore import rule_broken
from .mutants import MUTANTS, Mutant
from .schedule import parse

pytestmark = pytest.mark.xdist_group("mutants")

ROOT = Path(__file__).resolve().parents[2]

LONG = 1200
"""Seconds after which something hangs."""

Told = Mapping[str, Mapping[str, str]]


@pytest.fixture(scope="module")
def told() -> Told:
    """By defect: which rule its schedule breaks, and how."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.simulation.mutants", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(lines) == len(MUTANTS), run.stdout + run.stderr
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_defect_breaks_its_rule(mutant: Mutant, told: Told) -> None:
    found = told[mutant.name]
    assert found["rule"] == mutant.rule, found["what"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_without_the_defect_the_same_schedule_breaks_no_rule(mutant: Mutant) -> None:
    assert rule_broken(parse(mutant.schedule)) is None


def test_the_defects_are_many_and_each_has_a_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
