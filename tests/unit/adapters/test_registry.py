"""What adapters are asked for, how one is found by its name, and what is said of one that cannot be used."""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elastic_run.adapters import imports_ahead, services
from elastic_run.adapters.contract import Accelerators, ImportsAhead, Peer, Round, Service, Worker
from elastic_run.adapters.environment import AdapterFailed, Told, per_worker, worker_environment
from elastic_run.adapters.imports_ahead import Package
from elastic_run.adapters.plain import Plain
from elastic_run.adapters.registry import BUILT_IN, NoAdapter, adapter
from elastic_run.elastic_agent.warm.declared import Table
from elastic_run.elastic_agent.workers.ports import Ports
from elastic_run.launcher.early import table_rows
from elastic_run.launcher.errors import UsageError
from elastic_run.launcher.options.parse import parse
from elastic_run.launcher.run import terms

ROUND = Round("job", 3, 4, 2, "a.host", 23456, restart_count=1, max_restarts=2, signals=("SIGTERM",))
WORKER = Worker(3, 1, 2, "b", 1, role_rank=3, role_world_size=4, error_file="/tmp/error.json")
ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "tiny_adapter.py"

Install = Callable[..., None]
"""Puts a distribution in a folder on `sys.path`."""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    def put(distribution: str, source: str, **points: str) -> None:
        site = tmp_path / distribution
        facts = site / f"{distribution}-1.5.dist-info"
        facts.mkdir(parents=True)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
        lines = [f"{name} = {value}" for name, value in points.items()]
        (facts / "entry_points.txt").write_text("\n".join(["[elastic_run.adapters]", *lines, ""]))
        (site / f"{distribution}_adapter.py").write_text(source)
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, f"{distribution}_adapter", raising=False)

    return put


def refused(name: str) -> str:
    with pytest.raises(NoAdapter) as caught:
        adapter(name)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_built_in_adapters_keep_the_contract(name: str) -> None:
    built_in: Plain = adapter(name)
    assert built_in.name == name
    assert isinstance(built_in.accelerators({}), Accelerators)
    for pattern in (*built_in.consequences, *(hint.pattern for hint in built_in.hints)):
        re.compile(pattern)


def test_a_variable_that_is_not_the_same_for_all_workers_is_declared_so() -> None:
    other = Round("job", 4, 3, 1, "b.host", 34567, restart_count=2, max_restarts=2, signals=("SIGTERM",))
    neighbour = Worker(0, 0, 2, "b", 0, role_rank=0, role_world_size=3, error_file="/tmp/other.json")
    for name in BUILT_IN:
        one, two = (
            worker_environment(adapter(name), round, worker, {}, Told(agent="@a"))
            for round, worker in ((ROUND, WORKER), (other, neighbour))
        )
        assert {key for key in {*one, *two} if one.get(key) != two.get(key)} <= per_worker(adapter(name))


def test_without_a_framework_a_worker_knows_who_it_is_and_where_rank_0_is() -> None:
    assert worker_environment(adapter("none"), ROUND, WORKER, {"PATH": "/bin"}, Told(8, "@agent")) == {
        "PATH": "/bin",
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_NAME": "default",
        "MASTER_ADDR": "a.host",
        "MASTER_PORT": "23456",
        "ELASTIC_RUN_JOB_ID": "job",
        "ELASTIC_RUN_RESTART_COUNT": "1",
        "ELASTIC_RUN_ROUND": "3",
        "ELASTIC_RUN_MAX_WORLD_SIZE": "8",
        "ELASTIC_RUN_AGENT": "@agent",
    }


class Odd(Plain):
    """As `none`, but for what a test changes."""

    name = "odd"
    port = ""
    visible_devices = ""

    def environment(self, round: Round, worker: Worker, inherited: Mapping[str, str]) -> Mapping[str, str | None]:
        if worker.rank == 7:
            raise KeyError("no such peer")
        return {"RANK": "of its own", "HOME": None, "ELASTIC_RUN_AGENT": "@forged"}


def test_an_adapter_may_change_and_take_away_variables_but_not_what_the_agent_says() -> None:
    found = worker_environment(Odd(), ROUND, WORKER, {"HOME": "/", "MASTER_PORT": "1"}, Told(agent="@ours"))
    assert (found["RANK"], found["ELASTIC_RUN_AGENT"]) == ("of its own", "@ours")
    assert "HOME" not in found


def test_without_a_port_none_is_offered_and_a_worker_is_told_of_none() -> None:
    ports = Ports(0, 0)
    ports.renew()
    assert ports.offered == ()
    portless = Round("job", 3, 4, 2, "a.host", 0)
    assert "MASTER_PORT" not in worker_environment(Odd(), portless, WORKER, {"MASTER_PORT": "1"}, Told())


def test_an_adapter_without_devices_differs_in_none() -> None:
    assert "" not in per_worker(Odd())


def test_what_an_adapter_raises_names_it() -> None:
    with pytest.raises(AdapterFailed, match=r"the adapter odd failed at the environment of rank 7: KeyError"):
        worker_environment(Odd(), ROUND, Worker(7, 0, 1), {}, Told())


class Tracked(Plain):
    """Has a service for rank 0, and one for each node."""

    def services(self, round: Round) -> Sequence[Service]:
        if round.nodes == 7:
            raise KeyError("no such tracker")
        return (Service("tracker", ("-m", "tracker")), Service("watch", ("watch.py",), "job", "every"))


def test_the_services_of_a_node_depend_on_whether_rank_0_is_on_it() -> None:
    assert [service.name for service in services.wanted(Tracked(), ROUND, first=True)] == ["tracker", "watch"]
    assert [service.name for service in services.wanted(Tracked(), ROUND, first=False)] == ["watch"]
    with pytest.raises(AdapterFailed, match=r"the adapter none failed at the services of round 3: KeyError"):
        services.wanted(Tracked(), replace(ROUND, nodes=7), first=False)


def test_a_service_is_told_of_a_round_in_one_line() -> None:
    line = services.line(replace(ROUND, peers=(Peer(0, "a.host", (1, 2), "chief"),)), 1)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert json.loads(line) == {
        "job": "job",
        "round": 3,
        "world_size": 4,
        "nodes": 2,
        "master_addr": "a.host",
        "master_port": 23456,
        "restart_count": 1,
        "node_rank": 1,
        "peers": [{"host": "a.host", "ports": [1, 2], "role": "chief", "node": 0}],
    }


def test_an_adapters_own_packages_are_declared_beside_those_for_all() -> None:
    more = ImportsAhead((Package("tiny", "tiny", ("1.0", "1.2")), Package("wandb", "wandb", None)))
    rows, without = table_rows(more), table_rows(ImportsAhead())
    assert {*without} - {*rows} == {row for row in without if row[:2] == ("refused", "wandb")}
    assert Table(rows).problem("wandb") == ""
    assert "version of tiny" in Table(rows).problem("tiny"), "it is declared, and not installed here"
    assert "version of tiny" not in Table(without).problem("tiny")
    assert "wandb" in imports_ahead.REFUSED


def test_an_adapters_repair_is_run_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "repair.py"
    file.write_text("import os\ndef repair(module):\n    module.pid = os.getpid()\n")

    class Module:
        pid = 0

    repairs = Table(table_rows(ImportsAhead(repairs={"tiny.ids": file}))).repairs
    module: Any = Module()
    repairs["tiny.ids"](module)
    assert module.pid > 0


def test_an_installed_package_brings_an_adapter(install: Install) -> None:
    install("tinydist", EXAMPLE.read_text(), tiny="tinydist_adapter:Tiny")
    tiny = adapter("tiny")
    assert tiny.name == "tiny"
    variables = worker_environment(tiny, ROUND, WORKER, {"TINY_DEBUG": "1"}, Told())
    assert {name: value for name, value in variables.items() if name.startswith("TINY_")} == {
        "TINY_MEET": "a.host:23456",
        "TINY_ID": "3",
        "TINY_SIZE": "4",
        "TINY_JOB": "job",
        "TINY_THREADS": "1",
    }


def test_the_example_is_under_sixty_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 60


def test_an_unknown_name_is_refused_with_those_that_are_there(install: Install) -> None:
    install("known", EXAMPLE.read_text(), tiny="known_adapter:Tiny", torch="known_adapter:Tiny")
    assert refused("tinny") == (
        f"there is no adapter for 'tinny': {', '.join(BUILT_IN)} are built in, and installed packages bring tiny"
    )


def test_nobody_takes_the_place_of_a_built_in_adapter(install: Install) -> None:
    install("impostor", EXAMPLE.read_text(), torch="impostor_adapter:Tiny")
    assert "TORCHELASTIC_RUN_ID" in worker_environment(adapter("torch"), ROUND, WORKER, {}, Told())


def test_two_packages_with_one_name_are_refused(install: Install) -> None:
    install("first", EXAMPLE.read_text(), tiny="first_adapter:Tiny")
    install("second", EXAMPLE.read_text(), tiny="second_adapter:Tiny")
    message = refused("tiny")
    assert "first_adapter:Tiny of first 1.5 and second_adapter:Tiny of second 1.5 both are" in message


HEAD = (
    "from elastic_run.adapters.contract import *\nfrom elastic_run.adapters.plain import Plain\nclass Broken(Plain):\n"
)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_framework\n", "ModuleNotFoundError: No module named 'no_such_framework'"),
        ("", "AttributeError"),
        ("def Broken():\n    raise OSError('two\\nlines')\n", "OSError: two lines"),
        ("class Broken:\n    name = 'broken'\n", "it has no port"),
        (f"{HEAD}    pass\n", "its name is 'none', and not 'broken'"),
        (f"{HEAD}    name = 'broken'\n    worker_ports = 17\n", "its worker_ports is not between 0 and 16"),
        (
            f"{HEAD}    name = 'broken'\n    def services(self, r):\n        return ['tracker']\n",
            "are not all a Service",
        ),
        (f"{HEAD}    name = 'broken'\n    def services(self, r):\n        return [Service('a', ())] * 2\n", "one name"),
        (f"{HEAD}    name = 'broken'\n    per_worker = ['RANK']\n", "its per_worker is no frozenset"),
        (f"{HEAD}    name = 'broken'\n    consequences = ('(',)\n", "rror: missing ), unterminated subpattern"),
        (f"{HEAD}    name = 'broken'\n    hints = ('text',)\n", "its hints are not all a Hint"),
        (f"{HEAD}    name = 'broken'\n    def accelerators(self, environ):\n        return 4\n", "no Accelerators"),
        (f"{HEAD}    name = 'broken'\n    def environment(self, *a):\n        return {{'RANK': 3}}\n", "no text"),
        (f"{HEAD}    name = 'broken'\n    def environment(self, r, w, i):\n        return 1 // r.nodes\n", "Zero"),
        (
            f"{HEAD}    name = 'broken'\n    def environment(self, r, *o):\n        return r.services['a']\n",
            "its environment() raises KeyError('a') for a round of number 0, which has no peers and no services: ",
        ),
    ],
)
def test_a_broken_adapter_is_refused_with_whose_it_is_and_why(install: Install, source: str, words: str) -> None:
    install("broken", source, broken="broken_adapter:Broken")
    message = refused("broken")
    assert message.startswith("broken_adapter:Broken of broken 1.5 is no adapter that can be used: ")
    assert words in message


@pytest.mark.parametrize(
    ("given", "source", "words"),
    [
        ("mine.py", "", r"'mine.py' does not say which class of which file: write --framework=FILE\.py:CLASS$"),
        ("mine.py:", "", r"write --framework=FILE\.py:CLASS$"),
        (":Broken", "", r"write --framework=FILE\.py:CLASS$"),
        ("other.py:Broken", "", r"there is no file /.*/other\.py: each node needs its own copy at the path given$"),
        (".:Broken", "", "there is no file /"),
        ("mine.py:Broken", "", r"^mine\.py has no class Broken: name a new subclass of .*\.adapters\.plain\.Plain$"),
        ("mine.py:Broke", f"{HEAD}    pass\nclass Two(Broken):\n    pass\n", "no class Broke: name Broken or Two$"),
        ("mine.py:Broken", "Broken = 7\n", "mine.py has no class Broken: "),
        (
            "mine.py:Broken",
            "import no_such_framework\n",
            r"^mine\.py:Broken is no adapter that can be used: ModuleNotFoundError: No module named "
            r"'no_such_framework': mend it, and import no framework$",
        ),
        ("mine.py:Broken", "class Broken(:\n", r"can be used: SyntaxError: .*\(mine\.py, line 1\): mend it"),
        ("mine.py:Broken", "raise SystemExit('a script')\n", "can be used: SystemExit: a script: mend it"),
        (
            "mine.py:Broken",
            "class Broken:\n    pass\n",
            r"mine\.py:Broken is no adapter that can be used: it has no name: let it inherit from .*\.plain\.Plain$",
        ),
        (
            "mine.py:Broken",
            f"{HEAD}    name = 7\n",
            "mine.py:Broken is no adapter that can be used: its name is no str",
        ),
        ("mine.py:Broken", f"{HEAD}    worker_ports = 17\n", "its worker_ports is not between 0 and 16"),
        ("mine.py:Broken", f"{HEAD}    def services(self, r):\n        exit(3)\n", "can be used: SystemExit: 3"),
    ],
)
def test_a_file_without_an_adapter_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, source: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(source)
    assert re.search(words, refused(given))
    (tmp_path / "train.py").write_text("")
    with pytest.raises(UsageError, match=f"^--framework={re.escape(given)}: "):
        parse([f"--framework={given}", "train.py"], {"USER": "ada", "PATH": "/usr/bin:/bin"})


def test_nodes_agree_on_the_adapter_of_a_file_wherever_each_has_it(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    install("known", EXAMPLE.read_text(), tiny="known_adapter:Tiny")
    unnamed = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    unnamed += f"from elastic_run.adapters.torch.adapter import Torch\n{HEAD}    pass\n"
    unnamed += "@dataclass\nclass Own(Torch):\n    at: str = __file__\n"
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(EXAMPLE.read_text())
        (tmp_path / folder / "unnamed.py").write_text(unnamed)
    (tmp_path / "train.py").write_text("")
    environ = {"USER": "ada", "PATH": "/usr/bin:/bin"}

    def compared(framework: str) -> str:
        return terms(parse([f"--framework={framework}", "train.py"], environ)).fingerprint.framework

    assert {compared(each) for each in ("tiny", "a/mine.py:Tiny", f"{tmp_path}/b/mine.py:Tiny")} == {"tiny"}
    assert {compared(f"{each}/unnamed.py:Broken") for each in ("a", tmp_path / "b")} == {"unnamed.py:Broken"}
    assert {compared(f"{each}/unnamed.py:Own") for each in "ab"} == {"unnamed.py:Own"}, "it is not torch's"
    assert vars(adapter("a/unnamed.py:Own"))["at"] == str(tmp_path / "a" / "unnamed.py")
    assert adapter("torch").name == "torch" and adapter("none").name == "none"
    assert {each.name for each in (tmp_path / "a").iterdir()} == {"mine.py", "unnamed.py"}, "it leaves nothing behind"


def test_where_a_job_is_only_submitted_its_file_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise SystemExit('it was run')\n")
    for framework in ("mine.py:Tiny", "/in/the/image.py:Tiny"):
        found = parse([f"--framework={framework}", "--roles=ps:1", "train.py"], {}, workers=False, here=False)
        assert f"--framework={framework}" in found.given
    with pytest.raises(UsageError, match=r"write --framework=FILE\.py:CLASS"):
        parse(["--framework=mine.py", "train.py"], {}, workers=False, here=False)


def test_the_flag_chooses_the_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    environ = {"USER": "ada", "PATH": "/usr/bin:/bin"}
    assert parse(["train.py"], environ).adapter.name == "torch"
    chosen = parse(["--framework=none", "--nnodes=2", "train.py"], environ)
    assert chosen.adapter.name == "none" and "--framework=none" in chosen.given
    with pytest.raises(UsageError, match=r"--framework=caffe: there is no adapter for 'caffe': torch, "):
        parse(["--framework=caffe", "train.py"], environ)


def test_an_adapter_may_read_what_its_own_service_says(install: Install) -> None:
    install(
        "board",
        f"{HEAD}    name = 'board'\n"
        "    def services(self, round):\n        return [Service('board', ('-m', 'board'))]\n"
        "    def environment(self, round, worker, inherited):\n"
        "        return {'AT': str(int(round.services['board']))} if round.number else {}\n",
        board="board_adapter:Broken",
    )
    assert adapter("board").name == "board"


def test_a_package_that_workers_need_is_looked_for_where_they_look(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("needy", f"{HEAD}    name = 'needy'\n    needs = ('needed_here',)\n", needy="needy_adapter:Broken")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    environ = {"USER": "ada", "PATH": "/usr/bin:/bin"}
    script = ["--framework=needy", "scripts/train.py"]
    for words in (script, ["--framework=needy", "-m", "anything"]):
        with pytest.raises(
            UsageError, match=r"--framework=needy: the workers' Python \(.*\) has no package needed_here"
        ):
            parse(words, environ)
    parse(["--framework=needy", "--no-python", "true"], environ)  # whose Python it is, nobody knows
    parse(script, environ, workers=False)  # `elastic-run master` runs no workers
    (tmp_path / "scripts" / "needed_here.py").write_text("raise SystemExit('it was imported')")
    parse(script, environ)


def test_devices_that_nobody_can_show_are_not_shared_out(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("blind", f"{HEAD}    name = 'blind'\n    visible_devices = ''\n", blind="blind_adapter:Broken")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    with pytest.raises(UsageError, match="--virtual-local-rank: the adapter for blind knows of no variable"):
        parse(["--framework=blind", "--virtual-local-rank", "train.py"], {"USER": "ada", "PATH": "/usr/bin:/bin"})
