"""A master that is killed at any of its requests to the API server: the next one brings the job to the same end.

The API server is the double, and each life of a master is cut at one request: before it is done, or when it is done and
not answered. Everything of a master is real but the part that trains: `managed` is scripted here.
"""

from pathlib import Path

import pytest

from elastic_run.elastic_agent.master_process import MasterSetup
from elastic_run.launcher.cluster import managed_nodes
from elastic_run.launcher.cluster import master_pod as cluster_master
from elastic_run.launcher.cluster.managed_nodes import Start
from elastic_run.launcher.options import parse as options
from elastic_run.launcher.run import terms
from elastic_run.master.nodes import node_manager
from elastic_run.master.nodes.kubernetes import job, objects, pods
from elastic_run.master.nodes.kubernetes.api import Api
from elastic_run.master.nodes.replica import Launch
from elastic_run.rendezvous.store.memory_store import MemoryStore

from ..doubles.api_double import Asked
from ..doubles.scripted_job import REQUEST, WORDS, ScriptedJob


class Forgotten(ScriptedJob):
    """A job whose nodes have succeeded, and whose store tells of it no more when a master comes; `managed` is real."""

    async def _lead(self, api: Api) -> tuple[int, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cluster_master.Api, "load", lambda: api)
            patch.setattr(managed_nodes, "FINISHED_SECONDS", 0.5)
            patch.setenv(objects.JOB_VARIABLE, "night")
            given = options.parse(WORDS, {}, workers=False, here=False)
            setup = MasterSetup("night-1", "master", "127.0.0.1", "127.0.0.1", terms(given))
            start = Start(given, setup, MemoryStore(), self.said.append, None)
            async with cluster_master.cluster_of(self.said.append) as cluster:
                return await cluster.lead(start, "127.0.0.1:2379")


async def test_a_job_whose_nodes_have_succeeded_is_over_though_its_store_tells_of_it_no_more(tmp_path: Path) -> None:
    """As when the machine of its only master was lost at the end, and taken for lost after minutes."""
    with Forgotten(tmp_path, 0) as night:
        owner = objects.owner_of(night.double.all("jobs", "batch/v1")["night"])
        template = objects.with_command(objects.node_template(REQUEST, ""), ["true"])
        for index in range(3):
            night.double.objects.create(
                night.double.place("pods"), pods.made("night", template, [owner], Launch("", index, 0))
            )
        for each in night.double.all("pods").values():
            state = {"name": "agent", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
            night.double.machines.say(each, {"phase": "Succeeded", "containerStatuses": [state]})
        assert await night.live()
        status = objects.status_of(night.double.all("configmaps")["night"])
        assert status["exitCode"] == 0 and "no master saw it: night-worker-0" in status["reason"], status
        assert len(night.double.all("pods")) == 3, "their logs stay"
        assert night.double.count("create", "pods") == 0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "WRITTEN", 0.05)
    monkeypatch.setattr(job, "PAUSE", 0.1)
    monkeypatch.setattr(node_manager, "LOOK", 0.02)
    monkeypatch.setattr(node_manager, "PAUSES", (0.1,))
    monkeypatch.setattr(node_manager, "AGAIN", (0.5, 0.5))


@pytest.mark.parametrize("code", [0, 1])
async def test_a_master_that_is_killed_at_any_request_is_followed_by_one_that_comes_to_the_same_end(
    tmp_path: Path, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[str] = []

    def note(asked: Asked, when: str) -> bool:
        if when == "before":
            steps.append(str(asked))
        return False

    with ScriptedJob(tmp_path / "whole", code) as night:
        assert await night.live(note)
        night.check()
    table: list[str] = []
    for number in range(len(steps)):
        for when in ("before", "after"):
            seen = 0
            what = ""

            def cut(asked: Asked, now: str, number: int = number, when: str = when) -> bool:
                nonlocal seen, what
                hit = now == when and seen == number
                seen += now == when
                what = str(asked) if hit else what
                return hit

            with ScriptedJob(tmp_path / f"{number}-{when}", code) as night:
                ended = await night.live(cut)
                if not ended:
                    assert await night.live()
                night.check()
                extra = len(night.double.made()) - 3
                table.append(f"{number:3} {when:6} {what or 'not reached':45} {f'{extra:+} pods' if extra else ''}")
    with capsys.disabled():
        print("", *table, sep="\n")
