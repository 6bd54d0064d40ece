"""The Role of a job's master, right by right: each is used, and without any one of them something is missing.

The API server is the double, which keeps to roles as a real one does (test_conformance.py asks both).
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from elastic_run.master.nodes.kubernetes import job, objects
from elastic_run.master.nodes.kubernetes.api import Api
from elastic_run.master.nodes.kubernetes.job import ClusterJob
from elastic_run.master.nodes.platform import PlatformError

from ..doubles.scripted_job import ScriptedJob
from .jobs import ROLE

(MASTERS_ROLE,) = [each for each in yaml.safe_load_all(ROLE.read_text()) if each["kind"] == "Role"]

RIGHTS = [
    (plural.partition("/")[0], f"{group}/v1" if group else "", plural.partition("/")[2], verb)
    for rule in MASTERS_ROLE["rules"]
    for group in rule["apiGroups"]
    for plural in rule["resources"]
    for verb in rule["verbs"]
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "WRITTEN", 0.05)
    monkeypatch.setattr(job, "PAUSE", 0.1)


def grant(night: ScriptedJob, without: tuple[str, str, str, str] | None = None) -> None:
    """Applies role.yaml, without one of its rights."""
    for each in yaml.safe_load_all(ROLE.read_text()):
        if each["kind"] == "Role" and without:
            plural, group, part, verb = without
            for rule in each["rules"]:
                named = f"{plural}/{part}" if part else plural
                if rule["resources"] == [named] and rule["apiGroups"] == [group.partition("/")[0]]:
                    rule["verbs"] = [known for known in rule["verbs"] if known != verb]
        group = each["apiVersion"]
        night.double.objects.create(night.double.place(f"{each['kind'].lower()}s", group), each)


def asks(night: ScriptedJob) -> Iterator[tuple[str, str, str, str]]:
    for each in list(night.double.asked):
        group = "" if each.place.group == "v1" else each.place.group
        yield each.place.plural, group, each.part, each.verb


async def end_store(night: ScriptedJob) -> None:
    """As the process of the master does at the end. Raises PlatformError."""
    path = night.double.kubeconfig_of(objects.SERVICE_ACCOUNT, "-store")
    api = Api.load("", str(path))
    try:
        ended = ClusterJob(api, "night", night.said.append)
        ended.store_size = 3
        await ended.end_store()
    finally:
        api.close()


async def test_a_master_uses_each_right_that_it_has_and_asks_for_no_other(tmp_path: Path) -> None:
    with ScriptedJob(tmp_path, code=1) as night:
        grant(night)
        assert await night.live(account=objects.SERVICE_ACCOUNT)
        night.check()
        with pytest.raises(PlatformError, match="could not find"):  # the double knows no scale
            await end_store(night)
        assert set(asks(night)) == set(RIGHTS)


@pytest.mark.parametrize("right", RIGHTS, ids=lambda right: " ".join(filter(None, right)))
async def test_without_any_one_of_its_rights_a_master_says_what_it_cannot_do(
    tmp_path: Path, right: tuple[str, str, str, str]
) -> None:
    plural, _, part, verb = right
    words = f'cannot {verb} resource "{plural}{"/" + part if part else ""}"'
    with ScriptedJob(tmp_path, code=1) as night:
        grant(night, without=right)
        if part:
            with pytest.raises(PlatformError, match="cannot patch"):
                await end_store(night)
            return
        life = asyncio.create_task(night.live(account=objects.SERVICE_ACCOUNT))
        try:
            await night.until(lambda: life.done() or any(words in line for line in night.said))
        finally:
            life.cancel()
            (ended,) = await asyncio.gather(life, return_exceptions=True)
        assert any(words in line for line in (*night.said, str(ended))), (night.said, ended)
