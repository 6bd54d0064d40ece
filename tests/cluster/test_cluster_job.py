"""A job's own objects on a double of the API server: its end is written once, and nothing is written over it."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elastic_run.launcher.cluster.master_pod import Cluster, Report
from elastic_run.master.nodes.kubernetes import api, job, objects
from elastic_run.master.nodes.kubernetes.api import Api
from elastic_run.master.nodes.kubernetes.job import ClusterJob
from elastic_run.master.nodes.kubernetes.objects import Control
from elastic_run.master.nodes.platform import PlatformRefused

from ..doubles.api_double import ApiDouble, Fault

REQUEST = objects.Request("night", "night-1", "any", (), ("train.py",))

END = {"state": "succeeded", "exitCode": 0}

SECONDS = 60.0


class Night:
    """A job in the double, as its user and each of its masters see it."""

    def __init__(self, double: ApiDouble) -> None:
        self.double = double
        made = double.objects.create(double.place("jobs", "batch/v1"), objects.master_job(REQUEST))
        double.objects.create(double.place("configmaps"), objects.config_map(REQUEST, objects.owner_of(made)))
        self.api = Api.load("", str(double.kubeconfig))
        self.said: list[str] = []

    async def master(self) -> ClusterJob:
        found = ClusterJob(self.api, "night", self.said.append)
        await found.load()
        return found

    def data(self) -> Any:
        return self.double.all("configmaps")["night"]["data"]

    def status(self) -> Any:
        return json.loads(self.data()[objects.STATUS])

    def change(self, control: Control) -> None:
        patch = {"data": {objects.CONTROL: control.text}}
        self.double.objects.patch(self.double.place("configmaps"), "night", patch)

    async def until(self, happened: Any) -> None:
        end = time.monotonic() + SECONDS
        while not happened():
            assert time.monotonic() < end, f"not within {SECONDS:g} s: {self.data()}, {self.said}"
            await asyncio.sleep(0.02)


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Night]:
    monkeypatch.setattr(job, "PAUSE", 0.1)
    monkeypatch.setattr(job, "WRITTEN", 0.1)
    with ApiDouble(tmp_path) as double:
        made = Night(double)
        yield made
        made.api.close()


async def test_the_newest_status_is_written_while_the_user_changes_what_is_wanted(night: Night) -> None:
    master = await night.master()
    changes: list[Control] = []
    tasks = [asyncio.create_task(master.write())]
    tasks += [asyncio.create_task(master.follow(lambda: changes.append(master.control)))]
    for count in range(10):
        night.change(Control({"": count}))
        master.tell({"state": "running", "round": count})
        await night.until(lambda count=count: night.status().get("round") == count)
    await night.until(lambda: changes and changes[-1].scale == {"": 9})
    assert Control.read(night.data()[objects.CONTROL]).scale == {"": 9}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_write_that_the_server_does_late_is_not_done_over_the_end(night: Night) -> None:
    master = await night.master()
    night.double.fault(Fault("patch", "configmaps", delay=0.5))
    master.tell({"state": "running"})
    writing = asyncio.create_task(master.write())
    await night.until(lambda: night.double.count("patch", "configmaps"))
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await master.end(END)
    await asyncio.sleep(1.0)
    assert night.status() == END


async def test_a_master_that_was_away_writes_nothing_over_the_end_that_another_has_written(night: Night) -> None:
    old, new = await night.master(), await night.master()
    await new.end(END)
    old.tell({"state": "running"})
    writing = asyncio.create_task(old.write())
    await night.until(lambda: any("another master has ended" in line for line in night.said))
    await asyncio.sleep(0.5)
    await old.end({"state": "failed", "exitCode": 1})
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    assert night.status() == END


async def test_what_is_told_while_the_end_is_being_written_is_not_written_in_its_place(night: Night) -> None:
    """The pods of the job's store are looked at until all is done, and each look tells."""
    master = await night.master()
    night.double.fault(Fault("patch", "configmaps", status=503, times=2))
    ending = asyncio.create_task(master.end(END))
    await night.until(lambda: night.double.count("patch", "configmaps"))
    master.tell({"state": "running"})
    await ending
    assert night.status() == END


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=500, done=True, times=2),
        Fault(close=True, done=True, times=2),
        Fault(hang=True, done=True),
        Fault(status=503, times=2),
        Fault(status=409),
        Fault(status=401, times=3),
        Fault(status=200, body=b"<html>log in</html>"),
    ],
    ids=["500 though done", "closed though done", "silent though done", "503", "409", "401", "a proxy's page"],
)
async def test_the_end_is_written_whatever_is_answered(
    night: Night, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(api, "TIMEOUT", (3.0, 1.0))
    master = await night.master()
    night.double.fault(replace(fault, verb="patch", plural="configmaps"))
    night.change(Control(suspend=True))
    await master.end(END)
    assert night.status() == END
    assert Control.read(night.data()[objects.CONTROL]).suspend


@pytest.mark.parametrize(("code", "limit"), [(0, objects.ATTEMPTS), (1, 0)])
async def test_an_end_that_cannot_be_written_is_left_to_the_next_master(
    night: Night, monkeypatch: pytest.MonkeyPatch, code: int, limit: int
) -> None:
    """Who succeeded all the same would leave a job that nobody sees end."""
    master = await night.master()
    cluster = Cluster(night.api, master, night.said.append)
    monkeypatch.setattr(ClusterJob.end, "__defaults__", (0.5,))
    night.double.fault(Fault("patch", "configmaps", times=0, status=503))
    with pytest.raises(PlatformRefused, match=r"the end of the job \(done\) could not be written"):
        await cluster.write_end(Report(master), code, "done")
    night.double.heal()
    assert night.double.all("jobs", "batch/v1")["night"]["spec"]["backoffLimit"] == objects.ATTEMPTS
    await cluster.write_end(Report(master), code, "done")
    assert night.status()["exitCode"] == code
    assert night.double.all("jobs", "batch/v1")["night"]["spec"]["backoffLimit"] == limit


async def test_a_status_that_cannot_be_written_is_told_once(night: Night) -> None:
    master = await night.master()
    night.double.fault(Fault("patch", "configmaps", times=5, status=403))
    master.tell({"state": "running"})
    writing = asyncio.create_task(master.write())
    await night.until(lambda: night.status() == {"state": "running"})
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    assert len(night.said) == 1 and "403" in night.said[0], night.said


async def test_the_first_master_lifts_the_limit_for_its_begin_unless_its_job_is_over_by_then(night: Night) -> None:
    place = night.double.place("jobs", "batch/v1")
    night.double.objects.patch(place, "night", {"spec": {"activeDeadlineSeconds": 90}})
    master = await night.master()
    job = night.double.all("jobs", "batch/v1")["night"]["spec"]
    assert (job.get("activeDeadlineSeconds"), job["backoffLimit"]) == (None, objects.ATTEMPTS)
    await master.no_other_master()
    night.double.objects.patch(place, "night", {"spec": {"activeDeadlineSeconds": 1}})
    await master.end(END)
    await (await night.master()).no_other_master()
    assert night.double.all("jobs", "batch/v1")["night"]["spec"]["activeDeadlineSeconds"] == 1


async def test_a_job_that_may_not_be_changed_is_not_called_one_that_cannot_be_read(night: Night) -> None:
    night.double.fault(Fault("patch", "jobs", times=0, status=403))
    with pytest.raises(
        PlatformRefused, match=r"^the Job night cannot be told how often to replace a lost master: .*403"
    ):
        await night.master()


async def test_a_server_that_is_away_at_the_start_is_told_once(night: Night) -> None:
    night.double.fault(Fault("get", "jobs", times=5, status=503))
    await night.master()
    assert len(night.said) == 1 and "503" in night.said[0], night.said
