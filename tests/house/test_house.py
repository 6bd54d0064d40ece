"""The house rules that no other tool holds: what loads what, and how large a value may become."""

import ast
import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import elastic_run
from elastic_run.master.incident import Evidence, joins, judge
from elastic_run.rendezvous.header import Header, Incident, Tally
from elastic_run.rendezvous.member import MAX_EXITS, MAX_TRACEBACK_BYTES, Exit, Fingerprint, Member, Report
from elastic_run.rendezvous.node_reasons import PreemptionNotice, ProcessGone, StartFailed
from elastic_run.rendezvous.ranks import assign
from elastic_run.rendezvous.reasons import Reason, WorkerFailed
from elastic_run.rendezvous.round import Open, Policy, Round, Seen, Suspend
from elastic_run.rendezvous.store.contract import MAX_VALUE_BYTES
from elastic_run.rendezvous.wire.values import encode

from ..unit.deciding import plan

PACKAGE = Path(next(iter(elastic_run.__path__)))
ROOT = PACKAGE.resolve().parents[1]
FOLDERS = ("launcher", "elastic_agent", "adapters", "master", "rendezvous")
HEAVY = {"grpc", "google.protobuf", "torch", "psutil", "numpy", "tensorflow", "jax", "asyncio"}
FRAMEWORKS = {"torch", "tensorflow", "horovod", "jax", "xgboost"}

LIST_MODULES = "import json, sys; print(json.dumps({n: getattr(m, '__file__', None) for n, m in sys.modules.items()}))"


def loaded_by(statements: str) -> dict[str, str | None]:
    """The modules, with their files, that a fresh interpreter has loaded after `statements`."""
    code = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n{statements}\n{LIST_MODULES}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    return json.loads(done.stdout.splitlines()[-1])


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*.py") if not path.name.endswith("_pb2.py"))


def imports(path: Path) -> set[str]:
    """The top-level names that a file imports absolutely, at any depth of it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def modules_of(path: Path) -> str:
    return ".".join(("elastic_run", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def test_there_are_sources_to_look_at() -> None:
    assert len(list(sources())) > 20


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not HEAVY & set(loaded_by("import elastic_run; elastic_run.__version__"))


def test_the_store_in_memory_loads_nothing_of_etcds_wire() -> None:
    assert not {"grpc", "google.protobuf", "psutil"} & set(
        loaded_by("import elastic_run.rendezvous.store.memory_store")
    )


def test_the_pure_cores_load_no_loop_and_no_wire() -> None:
    cores = ("rendezvous.round", "rendezvous.ranks", "master.incident", "master.controller", "elastic_agent.plan")
    loaded = loaded_by("".join(f"import elastic_run.{core}\n" for core in cores))
    assert not {"asyncio", "socket", "grpc", "google.protobuf", "psutil"} & set(loaded)


def test_no_file_of_ours_is_loaded_under_two_names() -> None:
    # What Python's own start-up looks for is no module of the package: it runs in a warm interpreter only.
    names = {modules_of(path) for path in sources() if path.name != "sitecustomize.py"}
    loaded = loaded_by("import importlib\n" + "".join(f"importlib.import_module({name!r})\n" for name in sorted(names)))
    files: dict[Path, list[str]] = {}
    for name, file in loaded.items():
        ours = file and Path(file).resolve().is_relative_to(ROOT)
        if file and ours and "site-packages" not in Path(file).resolve().parts:  # `make` has its environment in here
            files.setdefault(Path(file).resolve(), []).append(name)
    assert {file: found for file, found in files.items() if len(found) > 1} == {}
    assert names <= {name for found in files.values() for name in found}


def test_only_the_wire_of_etcd_imports_grpc_and_protobuf() -> None:
    speakers = {path.name for path in sources() if {"grpc", "google"} & imports(path)}
    assert speakers, "somebody must"
    assert speakers == {"connections.py"}


def test_nothing_but_an_adapter_imports_a_framework() -> None:
    offenders = {
        str(path) for path in sources() if FRAMEWORKS & imports(path) and path.relative_to(ROOT).parts[0] != "adapters"
    }
    assert offenders == set()


def test_one_module_speaks_to_a_cluster() -> None:
    speakers = [str(path.relative_to(ROOT)) for path in sources() if {"kubernetes", "urllib3"} & imports(path)]
    assert speakers == ["master/nodes/kubernetes/api.py"]


NAMES_PYTORCH: Mapping[str, str] = {
    "elastic_agent/warm/bootstrap.py": "the end of a worker that has imported torch, whatever its framework",
    "elastic_agent/warm/hazards.py": "an import that draws from torch's common numbers, whoever makes it",
    "elastic_agent/warm/prefix.py": "calls of torch's that do nothing but tell what is inside of them",
    "elastic_agent/warm/repairs.py": "what torch's import notes of its process; any script may import it",
    "master/diagnosis/places.py": "modules in which a stack waits for other ranks; any script may use them",
    "rendezvous/member.py": "the adapter of a node that does not name its own",
}
"""Files below the adapters whose code names PyTorch or its libraries, each with the reason why that is no adapter's."""


def code_of(path: Path) -> str:
    """The source without comments and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]  # whichever node it is, it has one
    return ast.unparse(tree)


def test_what_lies_below_the_adapters_names_pytorch_only_where_a_reason_is_given() -> None:
    names = re.compile(r"\b_?(?:torch|gloo|nccl)(?!run|metrics)", re.IGNORECASE)
    below = [path for path in sources() if path.relative_to(ROOT).parts[0] in ("elastic_agent", "master", "rendezvous")]
    named = {str(path.relative_to(ROOT)) for path in below if names.search(code_of(path))}
    assert named == set(NAMES_PYTORCH)


@pytest.mark.parametrize(("file", "name"), [("elastic_agent/agent.py", "Agent"), ("master/master.py", "Master")])
def test_what_wires_the_parts_together_stays_short(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    assert found.end_lineno is not None and found.end_lineno - found.lineno < 350


def test_loading_the_whole_launcher_loads_no_framework() -> None:
    inside = ("master_pod.py", "operator.py", "unstarted.py")  # what is imported where there is a cluster only
    ours = [path for path in sources() if path.relative_to(ROOT).parts[0] == "launcher" and path.name not in inside]
    names = [modules_of(path) for path in ours]
    loaded = loaded_by("import importlib\n" + "".join(f"importlib.import_module({name!r})\n" for name in names))
    assert not (FRAMEWORKS | {"kubernetes"}) & set(loaded)
    assert "elastic_run.launcher.cli" in loaded


def test_nobody_pickles() -> None:
    offenders = {path for path in sources() if {"pickle", "cloudpickle", "dill", "marshal"} & imports(path)}
    # Horovod's workers do: what they say is read without any class, and a test has it refuse one.
    assert {path.relative_to(ROOT).as_posix() for path in offenders} == {"adapters/horovod/messages.py"}


def test_the_root_of_the_repository_imports_nothing() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    assert not any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(tree))


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
    largest = member(1, Report("failed", 1, exits, StartFailed(fill * 500)))
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
