"""The table of packages that may be imported ahead is well-formed; that it is right is proved in tests/integration."""

import re
import sys
from pathlib import Path

import pytest

from elastic_run.adapters import imports_ahead
from elastic_run.adapters.environment import per_worker
from elastic_run.adapters.imports_ahead import (
    DRAWS,
    NAMELESS,
    NAMESPACES,
    PACKAGES,
    READS_RANK,
    REFUSED,
    STDLIB_REFUSED,
    THREADS,
    WALKS,
)
from elastic_run.adapters.registry import adapter
from elastic_run.elastic_agent.warm.repairs import REPAIRS


def test_no_package_is_both_declared_and_refused():
    assert not PACKAGES.keys() & REFUSED.keys()
    assert not sys.stdlib_module_names & (PACKAGES.keys() | REFUSED.keys())
    assert STDLIB_REFUSED.keys() <= sys.stdlib_module_names | {"turtledemo"}


@pytest.mark.parametrize("package", PACKAGES.values(), ids=lambda package: package.name)
def test_an_entry_names_its_distribution_and_versions_in_normal_form(package: imports_ahead.Package):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", package.distribution)
    if package.tested:
        lowest, highest = (tuple(int(part) for part in version.split(".")) for version in package.tested)
        assert lowest <= highest
    assert all(late.module.startswith(f"{package.name}.") and late.wanted_by for late in package.late)


def test_no_version_that_is_newer_than_the_tested_ones_is_installed_for_the_tests():
    lines = (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()
    below = dict(line.split("<") for line in lines if not line.startswith("#"))
    tested = {package.distribution: package.tested[1] for package in PACKAGES.values() if package.tested}
    for distribution in tested.keys() - {"torch", "triton"}:  # the Makefile names torch's version, and that triton's
        major, minor = tested[distribution].split(".")
        assert below[distribution] == f"{major}.{int(minor) + 1}", f"{distribution} in tests/constraints.txt"


def test_reasons_are_words_that_finish_a_sentence():
    tables = (DRAWS, NAMELESS, NAMESPACES, REFUSED, STDLIB_REFUSED, THREADS)
    for reason in [reason for table in tables for reason in table.values()]:
        assert reason and not reason.endswith(".")


def test_whoever_reads_the_rank_reads_it_again_in_each_worker():
    assert READS_RANK.keys() <= REPAIRS.keys()
    assert {module.partition(".")[0] for module in READS_RANK} <= PACKAGES.keys()
    assert all(set(names) <= per_worker(adapter("none")) for names in READS_RANK.values())


def test_what_goes_through_all_variables_uses_one_prefix():
    assert all(re.fullmatch("[A-Z]+_", prefix) for prefix in WALKS.values())
