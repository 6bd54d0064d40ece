"""A job's status as metrics, and the pages and files that name them."""

import asyncio
import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from elastic_run.launcher.diagnostics.exporter.command import Collector, Observed, families, main
from elastic_run.launcher.diagnostics.exporter.metrics import METRICS, STORE_UP, UP
from elastic_run.launcher.errors import UsageError
from elastic_run.master.diagnosis.findings import Finding
from elastic_run.master.machine.parameter_servers import (
    RankWait,
    ServerMeasure,
    ServerReport,
    ServersStatus,
    ServerStatus,
    TableMeasure,
)
from elastic_run.master.status import Diagnosis, Status

from ....doubles.statuses import STATUS

ROOT = Path(__file__).parents[4]
KNOWN = {STORE_UP, UP.name, *(metric.name for metric in METRICS)}


class Registry:
    """What prometheus_client writes a page of."""

    def __init__(self, statuses: dict[str, Status | None] | None) -> None:
        self._statuses = statuses

    def collect(self) -> object:
        return families(self._statuses)


def samples(statuses: dict[str, Status | None] | None) -> dict[tuple[str, ...], float]:
    page = generate_latest(Registry(statuses)).decode()  # pyright: ignore[reportArgumentType]
    return {
        (sample.name, *sorted(sample.labels.values(), key=["a", "b"].__contains__, reverse=True)): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_each_job_has_its_values() -> None:
    found = samples({"a": STATUS, "b": dataclasses.replace(STATUS, state="waiting", world_size=0)})
    assert found["elastic_run_world_size", "a"] == 4 and found["elastic_run_world_size", "b"] == 0
    assert found["elastic_run_job_state", "a", "open"] == 1 and found["elastic_run_job_state", "b", "open"] == 0
    assert found["elastic_run_job_state", "b", "waiting"] == 1
    assert found["elastic_run_worker_failures_total", "a"] == 1
    assert found["elastic_run_nodes", "a", "running"] == 2 and found["elastic_run_standbys", "a"] == 1
    assert found["elastic_run_target_nodes", "a", ""] == 2
    assert [found["elastic_run_shards", "a", "images", state] for state in ("done", "leased", "waiting")] == [40, 6, 54]
    assert found["elastic_run_goodput_ratio", "a"] == pytest.approx(STATUS.goodput.share)


def test_each_parameter_server_and_table_has_its_values() -> None:
    measure = ServerMeasure((TableMeasure("user", 30, 2400, 20, 10, on_disk=9, read=4),), 7, 0.5, 9, 0.25, 3)
    servers = (
        ServerStatus("n0", ServerReport(0, "x", "answers", 0.1, 500, 400, 300, 1000, measure)),
        ServerStatus("n1", ServerReport(1)),
    )
    seen = ServersStatus(servers, (RankWait(5, (0, 1), 2.5),))
    found = samples({"a": dataclasses.replace(STATUS, parameter_servers=seen)})

    def value(name: str, *labels: str) -> float:
        (one,) = (each for key, each in found.items() if key[0] == name and set(labels) <= set(key))
        return one

    assert (
        value("elastic_run_server_state", "n0", "answers") == 1 == value("elastic_run_server_state", "n1", "starting")
    )
    parts = {"primary": 500, "backup": 400, "bare": 300, "copying": 3}
    assert {part: value("elastic_run_server_slots", part) for part in parts} == parts
    assert value("elastic_run_server_pulls_total") == 7 and value("elastic_run_server_push_seconds_total") == 0.25
    assert value("elastic_run_table_rows", "user", "n0") == 30 and value("elastic_run_table_given_ids_total") == 20
    assert (value("elastic_run_table_disk_rows"), value("elastic_run_table_disk_reads_total")) == (9, 4)
    assert value("elastic_run_server_wait_seconds", "0", "5") == 2.5 == value("elastic_run_server_wait_seconds", "1")


def test_each_suspect_is_told_once_and_only_a_rank_has_one() -> None:
    def found(finding: Finding) -> Diagnosis:
        return Diagnosis.of(finding, 1.0)

    sleeps, near = Finding("sleeps", 3, "n1", "strong"), Finding("memory-near", None, "n2", "certain")
    silent, nobody = (
        Finding("parameter-server", None, "n2", "strong", server=5),
        Finding("standstill", None, "", "weak"),
    )
    told = tuple(map(found, (sleeps, sleeps, near, silent, nobody)))
    status = dataclasses.replace(STATUS, diagnosis=told)
    page = generate_latest(Registry({"a": status})).decode()  # pyright: ignore[reportArgumentType]
    (family,) = [each for each in text_string_to_metric_families(page) if each.name == "elastic_run_suspect"]
    assert [(each.labels, each.value) for each in family.samples] == [
        ({"job": "a", "kind": "sleeps", "node": "n1", "rank": "3", "server": ""}, 1.0),
        ({"job": "a", "kind": "memory-near", "node": "n2", "rank": "", "server": ""}, 1.0),
        ({"job": "a", "kind": "parameter-server", "node": "n2", "rank": "", "server": "5"}, 1.0),
        ({"job": "a", "kind": "standstill", "node": "", "rank": "", "server": ""}, 1.0),
    ]


def test_a_job_that_does_not_answer_is_down_and_has_no_values() -> None:
    found = samples({"a": None})
    assert found["elastic_run_job_up", "a"] == 0 and found[(STORE_UP,)] == 1
    assert not any(name[0] == "elastic_run_round" for name in found)


def test_a_store_that_does_not_answer_is_all_that_is_said() -> None:
    assert samples(None) == {(STORE_UP,): 0.0}


def test_the_dashboard_and_the_alerts_name_metrics_and_states_that_there_are() -> None:
    dashboard = json.loads((ROOT / "deploy" / "monitoring" / "grafana-dashboard.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    alerts = yaml.safe_load((ROOT / "deploy" / "monitoring" / "alerts.yaml").read_text(encoding="utf-8"))
    expressions += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    assert len(expressions) > 20
    states = {state for metric in METRICS if metric.labels == ("state",) for (state, *_), _ in metric.read(STATUS)}
    for expression in expressions:
        assert set(re.findall(r"elastic_run_\w+", expression)) <= KNOWN, expression
        assert set(re.findall(r'state="(\w+)"', expression)) <= {*states, "done"}, expression


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--listen=nowhere:x",), "is not HOST:PORT"),
        (("--listen=192.0.2.250:1",), "is not an address of this machine"),
        (("train.py",), "takes no script"),
    ],
)
def test_a_wrong_command_is_refused(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        main(words, {})


class SlowJobs(Observed):
    """Jobs that answer when they are told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.may = asyncio.Event()

    async def statuses(self) -> Mapping[str, Status | None]:
        self.asked += 1
        await self.may.wait()
        return {"job": None}


async def test_jobs_are_asked_once_for_all_who_wait() -> None:
    jobs = SlowJobs()
    collector = Collector(asyncio.get_running_loop(), jobs)
    scrapes = [asyncio.create_task(asyncio.to_thread(lambda: list(collector.collect()))) for _ in range(4)]
    await asyncio.sleep(0.5)  # all wait
    jobs.may.set()
    assert all(found for found in await asyncio.gather(*scrapes))
    assert 1 <= jobs.asked <= 2
    before = jobs.asked
    await asyncio.to_thread(lambda: list(collector.collect()))
    assert jobs.asked == before + 1, "who comes later is given nothing old"
