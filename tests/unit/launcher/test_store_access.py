"""Commands that ask a job's store for days."""

import asyncio

import pytest

from elastic_run.launcher.store_access import renewed
from elastic_run.rendezvous.identity import contexts
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import new_secret


async def test_the_certificates_of_a_command_that_runs_for_days_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = asyncio.Event()
    monkeypatch.setattr(contexts, "LOOK_SECONDS", 0)
    monkeypatch.setattr(Identity, "renew", lambda _, now: looked.set())
    async with renewed(Identity(new_secret()), lambda line: None), asyncio.timeout(60):
        await looked.wait()
        looked.clear()
        await looked.wait()
    assert "renew certificates" not in {each.get_name() for each in asyncio.all_tasks()}, "not after its end"


async def test_a_command_without_a_certificate_renews_none() -> None:
    async with renewed(None, lambda line: None):
        assert "renew certificates" not in {each.get_name() for each in asyncio.all_tasks()}
