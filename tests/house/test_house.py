"""The house rules that no other tool holds: what a module names, and how large a value may become."""

import ast
import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from elastic_run.master.machine.incident import Evidence, joins, judge
from elastic_run.rendezvous.header import Header, Incident, Tally
from elastic_run.rendezvous.member import (
    MAX_EXITS,
    MAX_TRACEBACK_BYTES,
    MAX_WORKERS,
    Exit,
    Fingerprint,
    Member,
    Report,
    write_ranks,
)
from elastic_run.rendezvous.node_reasons import PreemptionNotice, ProcessGone, StartFailed
from elastic_run.rendezvous.ranks import assign
from elastic_run.rendezvous.reasons import Reason, WorkerFailed
from elastic_run.rendezvous.round import Open, Policy, Round, Seen, Suspend
from elastic_run.rendezvous.store.contract import MAX_VALUE_BYTES
from elastic_run.rendezvous.wire.values import decode, encode

from ..unit.deciding import plan
from .sources import ROOT, nodes, place, product, text


def imports(path: Path) -> set[str]:
    """The top-level names that a file imports absolutely, at any depth of it."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_there_are_sources_to_look_at() -> None:
    assert len(product()) > 300


def test_nobody_pickles() -> None:
    # Horovod's workers do: what they say is read without any class, and a test has it refuse one.
    pickles = {"pickle", "cloudpickle", "dill", "marshal"}
    assert [place(path) for path in product() if imports(path) & pickles] == ["adapters/horovod/messages.py"]


def test_frozen_values_are_declared_by_our_own_decorator() -> None:
    """But what scripts and adapters of others use, and what also runs without the package."""
    declares = [path for path in product() if "@dataclass(frozen=True, slots=True)" in text(path)]
    others = {place(path) for path in declares if "dataclasses" in imports(path) and "frozen import " not in text(path)}
    alone = {f"rendezvous/store/embedded/{name}.py" for name in ("supervisor", "watchdog")}
    assert {name for name in others if not name.startswith("adapters/")} == alone


NAMES_PYTORCH: Mapping[str, str] = {
    "elastic_agent/diagnosis/stacks.py": "between which ranks an operation is, as a stack of torch's shows",
    "elastic_agent/warm/bootstrap.py": "the end of a worker that has imported torch, whatever its framework",
    "elastic_agent/warm/hazards.py": "an import that draws from torch's common numbers, whoever makes it",
    "elastic_agent/warm/prefix.py": "calls of torch's that do nothing but tell what is inside of them",
    "elastic_agent/warm/repairs.py": "what torch's import notes of its process; any script may import it",
    "master/diagnosis/places.py": "modules in which a stack waits for other ranks; any script may use them",
    "master/diagnosis/remote_calls.py": "modules of RPC in which a stack is; any script may use it",
    "rendezvous/member.py": "the adapter of a node that does not name its own",
}
"""Files below the adapters whose code names PyTorch or its libraries, each with the reason why that is no adapter's."""


def words(path: Path) -> Iterator[str]:
    """Every name and every text of a module but its docstrings and comments."""
    documents = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
    for node in nodes(path):
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        elif id(node) not in documents:
            yield from (value for _, value in ast.iter_fields(node) if isinstance(value, str))


def test_what_lies_below_the_adapters_names_pytorch_only_where_a_reason_is_given() -> None:
    names = re.compile(r"\b_?(?:torch|gloo|nccl)(?!run|metrics)", re.IGNORECASE)
    below = [path for path in product() if place(path).startswith(("elastic_agent/", "master/", "rendezvous/"))]
    named = {place(path) for path in below if names.search(text(path)) and any(map(names.search, words(path)))}
    assert named == set(NAMES_PYTORCH)


@pytest.mark.parametrize(("file", "name"), [("elastic_agent/agent.py", "Agent"), ("master/master.py", "Master")])
def test_what_wires_the_parts_together_stays_short(file: str, name: str) -> None:
    (found,) = (node for node in nodes(ROOT / file) if isinstance(node, ast.ClassDef) and node.name == name)
    assert found.end_lineno is not None and found.end_lineno - found.lineno < 350


def test_the_root_of_the_repository_imports_nothing() -> None:
    assert not any(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes(ROOT / "__init__.py"))


NODES = 10_000
FINGERPRINT = Fingerprint(
    "/home/user/project/train.py",
    ("--data", "/mnt/data/" + "x" * 200) * 10,
    "1:10000",
    "8",
    "0.1.0",
    tuple(f"project/models/transformer/layer_{number}.py:01234567" for number in range(9)),
)
HEADER_BYTES = 200_000
"""A header goes to every node: with 10,000 of them more than this is gigabytes in each change."""


def host(number: int) -> str:
    return f"gpu-node-{number:05d}.rack-{number % 100:02d}.cluster.example.org"


def exit_of(rank: int, fill: str) -> Exit:
    """As large as the agent makes one, of characters that are the longest in JSON."""
    room = MAX_TRACEBACK_BYTES // len(fill.encode())
    return Exit(1, rank, 0, 2**22, 1, None, fill * 500, fill * room, "/logs/" + "x" * 200, 123456.789)


def member(number: int, report: Report | None = None) -> Member:
    name = host(number)
    ports = (20001, 20002, 20003, 20004)
    told = report or Report("running", 1)
    return Member(name, f"{number:016x}", name, f"{name}:40000", 8, ports, FINGERPRINT, report=told)


def seen(number: int) -> Seen:
    return Seen(member(number), number + 1, 0.0)


@pytest.mark.parametrize("fill", ["x", "\n", "\x00", "ä", "€", "𝄞"])
def test_the_largest_report_fits_the_store(fill: str) -> None:
    exits = tuple(exit_of(rank, fill) for rank in range(MAX_EXITS))
    ended = write_ranks(range(MAX_WORKERS))
    largest = member(1, Report("failed", 1, exits, StartFailed(fill * 500), ended=ended))
    assert decode(Report, encode(largest.report)).ended == ended
    assert len(encode(largest)) < MAX_VALUE_BYTES


def header(reason: Reason, incident: Incident | None, nodes: int = NODES) -> Header:
    text = dataclasses.replace(Tally(), failures=3, signature="1:" + "x" * 500)
    return Header(9, "run", "open", "lost", reason, FINGERPRINT, "1.9", nodes, "0" * 16, tally=text, incident=incident)


def test_the_header_of_ten_thousand_nodes_does_not_grow_with_them() -> None:
    members = [seen(number) for number in range(NODES)]
    decision, reason = plan(members, Round(0, (), False, 0.0), Policy(1, NODES), 0.0)
    assert isinstance(decision, Open) and len(decision.nodes) == NODES
    assert len(assign(1, decision.nodes)) == NODES
    small = plan(members[:10], Round(0, (), False, 0.0), Policy(1, 10), 0.0)[1]
    assert len(encode(header(reason, None))) < len(encode(header(small, None))) + 100


def test_the_header_of_a_failure_holds_the_largest_exit() -> None:
    for fill in ("x", "\x00", "𝄞"):
        exit_ = exit_of(0, fill)
        incident = Incident(8, "failure", WorkerFailed(host(0), 0, 1, None, exit_.message), host(0), host(0), exit_)
        assert len(encode(header(incident.reason, incident))) < HEADER_BYTES


def test_the_reason_for_many_departures_is_short() -> None:
    leaving = dataclasses.replace(seen(0).member, report=Report("leaving", 1))
    members = [
        dataclasses.replace(
            seen(number), member=dataclasses.replace(leaving, node=host(number), incarnation=str(number))
        )
        for number in range(200)
    ]
    current = Round(1, tuple(str(number) for number in range(201)), True, 0.0)
    stays = dataclasses.replace(seen(200), member=dataclasses.replace(seen(200).member, incarnation="200"))
    decision, reason = plan([*members, stays], current, Policy(2, NODES), 0.0)
    assert isinstance(decision, Suspend | Open)
    assert len(str(reason)) < 1000


def test_the_header_of_a_mass_loss_is_small() -> None:
    lost = tuple((host(number), ProcessGone(f"{host(number)}:40000")) for number in range(5000))
    incident = judge(Evidence(8, lost=lost))
    assert len(encode(header(incident.reason, incident))) < HEADER_BYTES


def test_the_header_of_a_mass_departure_is_small() -> None:
    incident = judge(Evidence(8, left=tuple((host(number), PreemptionNotice(15)) for number in range(5000))))
    assert len(encode(header(incident.reason, incident))) < HEADER_BYTES


def test_the_header_of_a_mass_join_is_small() -> None:
    incident = joins(8, [host(number) for number in range(5000)])
    assert len(encode(header(incident.reason, incident))) < HEADER_BYTES
