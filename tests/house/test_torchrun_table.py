"""The pages of flags and of `--rdzv-conf`, the table of flags and torch itself agree, in both directions."""

import argparse
import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic_run.launcher.options import rendezvous as options
from elastic_run.launcher.options.flags import FLAGS, Flag
from elastic_run.launcher.options.preflight import ONLY_ONCE
from elastic_run.launcher.settings import Timing

DOCS = Path(__file__).parents[2] / "docs"


FLAGS_OF = {
    "2.2.0": """
    local-addr log-dir master-addr master-port max-restarts module monitor-interval nnodes no-python node-rank
    nproc-per-node rdzv-backend rdzv-conf rdzv-endpoint rdzv-id redirects role run-path standalone start-method
    tee
    """,
    "2.15.0": """
    duplicate-stderr-filters duplicate-stdout-filters event-log-handler local-addr local-ranks-filter log-dir
    log-line-prefix-template logs-specs master-addr master-port max-restarts module monitor-interval nnodes
    no-python node-rank nproc-per-node numa-binding print-completion rdzv-backend rdzv-conf rdzv-endpoint
    rdzv-id redirects role run-path shutdown-timeout signals-to-handle standalone start-method tee
    virtual-local-rank
    """,
}
"""The flags of the oldest torchrun that is supported and of the newest that was looked at, from their own parsers."""


def rows(heading: str, page: str = "torchrun") -> Iterator[list[str]]:
    """The cells of the first table under a heading of a page, without its first two lines."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, flags=re.MULTILINE)
    for line in tables[0].splitlines()[2:]:
        yield [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def code(text: str) -> str:
    """As the page shows a name; empty for none."""
    return f"`{text}`" if text else ""


def names(flag: Flag) -> str:
    """As the page shows a flag: its letter and its name in hyphens."""
    return ", ".join(code(spelling) for spelling in flag.spellings if "_" not in spelling)


def test_the_page_lists_every_flag_of_torchrun_with_what_it_does_here() -> None:
    table = [[names(flag), flag.status, flag.remark, code(flag.mirror) or "-"] for flag in FLAGS if flag.torchrun]
    assert list(rows("Flag by flag")) == table


def test_the_page_lists_every_flag_of_our_own() -> None:
    table = [[names(flag), flag.help, code(flag.default or "")] for flag in FLAGS if not flag.torchrun]
    assert list(rows("Flags that torchrun does not have")) == table


def test_the_page_lists_every_key_of_ours_with_its_default() -> None:
    page = {key.strip("`"): float(default) for key, default, _ in rows("Keys of elastic-run", "rdzv-conf")}
    assert page == dataclasses.asdict(Timing())


def test_the_page_lists_every_key_of_torchrun() -> None:
    page = {key.strip("`"): (status, meaning) for key, status, meaning in rows("Keys of torchrun", "rdzv-conf")}
    honoured = {
        *options.CONF_ALIASES,
        *options.CONF_KEEP_ALIVE,
        *options.CONF_CREDENTIALS,
        options.CONF_HOST,
        "protocol",
    }
    assert {key for key, (status, _) in page.items() if status == "honoured"} == honoured
    assert {key: why for key, (status, why) in page.items() if status == "no effect"} == options.CONF_WITHOUT_EFFECT
    assert len(page) == len(honoured) + len(options.CONF_WITHOUT_EFFECT)
    for key, flag in options.CONF_CREDENTIALS.items():
        assert page[key][1] == f"`--{flag}`"


def test_every_flag_of_torchrun_says_what_it_means_here() -> None:
    assert [flag.name for flag in FLAGS if flag.torchrun and not flag.remark] == []
    assert [flag.name for flag in FLAGS if flag.status == "no effect" and not flag.remark.startswith("because ")] == []
    assert [flag.name for flag in FLAGS if flag.status == "unsupported" and not flag.remark.startswith("try ")] == []


@pytest.mark.parametrize("version", FLAGS_OF)
def test_every_flag_of_that_torchrun_is_known(version: str) -> None:
    known = {flag.name for flag in FLAGS if flag.torchrun and flag.since <= tuple(map(int, version.split(".")[:2]))}
    assert set(FLAGS_OF[version].split()) <= known
    if version == max(FLAGS_OF, key=lambda each: tuple(map(int, each.split(".")))):
        assert set(FLAGS_OF[version].split()) == known


def test_the_page_says_what_is_printed_for_a_script_on_standard_input() -> None:
    assert f"a script on standard input (-) {ONLY_ONCE}" in " ".join((DOCS / "torchrun.md").read_text("utf-8").split())


def test_no_two_flags_share_a_spelling() -> None:
    spellings = [spelling for flag in FLAGS for spelling in flag.spellings]
    assert len(spellings) == len(set(spellings))


@pytest.mark.torch
def test_the_parser_has_torchs_own_flags_spellings_choices_and_mirrors(monkeypatch: pytest.MonkeyPatch) -> None:
    run = pytest.importorskip("torch.distributed.run")
    for variable in [variable for variable in os.environ if variable.startswith("PET_")]:
        monkeypatch.delenv(variable)
    theirs: dict[str, tuple[set[str], bool, tuple[str, ...], bool]] = {}
    # argparse has no public way to list what a parser knows.
    for action in run.get_args_parser()._actions:
        if not action.option_strings or isinstance(action, argparse._HelpAction):  # pyright: ignore[reportPrivateUsage]
            continue
        mirrored = type(action).__name__ in ("env", "check_env")
        theirs[action.dest] = (set(action.option_strings), action.nargs == 0, tuple(action.choices or ()), mirrored)
    installed = tuple(map(int, pytest.importorskip("torch").__version__.split(".")[:2]))
    ours = {
        flag.name.replace("-", "_"): (set(flag.spellings), not flag.metavar, flag.choices, bool(flag.mirror))
        for flag in FLAGS
        if flag.torchrun and flag.since <= installed
    }
    assert ours == theirs
