"""How long a server may be silent."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Iterator
from itertools import count, repeat

import pytest

from elastic_run.elastic_agent.servers import silence
from elastic_run.master.machine.parameter_servers import ServerMeasure


def ignore_answer(pid: int, measure: ServerMeasure) -> None:
    pass


@pytest.fixture
async def address() -> AsyncGenerator[str]:
    """Of a server that takes connections and answers nothing."""
    name, taken = f"elastic-run-test-{secrets.token_hex(8)}", asyncio.Event()

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await taken.wait()
        writer.transport.abort()

    server = await asyncio.start_unix_server(take, f"\0{name}")
    yield f"@{name}"
    taken.set()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    ("state", "ticks", "seconds"),
    [("S", repeat(7), 0.1), ("T", repeat(7), 0.1), ("S", count(), 0.5), ("D", repeat(7), 0.5), ("R", repeat(7), 0.5)],
)
async def test_a_server_that_works_has_more_patience_than_one_that_does_nothing(
    address: str, monkeypatch: pytest.MonkeyPatch, state: str, ticks: Iterator[int], seconds: float
) -> None:
    monkeypatch.setattr(silence, "WORKING_SECONDS", 0.5)
    monkeypatch.setattr(silence, "read_activity", lambda _: (state, next(ticks)))
    assert await silence.await_silence(address, 0.1, ignore_answer) == pytest.approx(seconds)


async def test_another_users_server_is_none(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "own_peer", lambda _: None)
    assert await silence.await_silence(address, 0.1, ignore_answer) == pytest.approx(0.1)
