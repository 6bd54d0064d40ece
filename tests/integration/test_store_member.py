"""`elastic-run store`: three processes are one store, and each of them can be lost with all that it has kept."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import free_ports

SECONDS = 120.0

APART = ("unshare", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc")
"""It is process 1 of a namespace of its own, as in a container: what it has started ends with it."""

HOSTS = ("127.41.0.1", "127.41.0.2", "127.41.0.3")

NODE = "L2VsYXN0aWMtcnVuL2pvYi9ub2Rlcy9h"
"""`/elastic-run/job/nodes/a`, as the gateway takes it."""


class Members:
    """The processes, each with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        self.folder = folder
        self.endpoints = [f"{host}:{port}" for host in HOSTS]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, index: int) -> None:
        own = self.folder / str(index)
        own.mkdir(exist_ok=True)
        words = [f"--rdzv-endpoint={','.join(self.endpoints)}", f"--member={self.endpoints[index]}"]
        words += [f"--listen={HOSTS[index]}", f"--store-dir={own / 'data'}", "--insecure"]  # `ask` speaks plain HTTP
        with (own / "log").open("ab") as log:
            self.processes[index] = subprocess.Popen(
                [*APART, sys.executable, "-m", "elastic_run", "store", *words],
                stdout=log,
                stderr=log,
                env={**os.environ, "TMPDIR": str(own)},
            )

    def lose(self, index: int) -> None:
        """The pod is gone, and its data with it."""
        process = self.processes.pop(index)
        process.kill()
        process.wait()
        shutil.rmtree(self.folder / str(index))

    def ask(self, index: int, path: str, body: object) -> Any:
        request = urllib.request.Request(f"http://{self.endpoints[index]}/v3/{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=3) as answer:
            return json.loads(answer.read())

    async def does(self, index: int, path: str, body: object) -> Any:
        """What it answers as soon as it does: while a leader is elected, members refuse what comes."""
        end = asyncio.get_running_loop().time() + SECONDS
        while True:
            try:
                return self.ask(index, path, body)
            except OSError as failure:
                assert asyncio.get_running_loop().time() < end, failure
            await asyncio.sleep(0.1)

    def value(self, index: int) -> str:
        """Of the node's key, as that member answers with a majority; empty where there is none."""
        found = self.ask(index, "kv/range", {"key": NODE}).get("kvs") or [{"value": ""}]
        return str(found[0]["value"])

    async def until_value(self, index: int, expected: str) -> None:
        """Waits until the member answers with a majority; a member refuses what comes while a leader is elected."""
        end = asyncio.get_running_loop().time() + SECONDS
        while True:
            try:
                found = self.value(index)
            except OSError as failure:
                assert asyncio.get_running_loop().time() < end, failure
                await asyncio.sleep(0.1)
                continue
            assert found == expected
            return

    async def until_it_answers(self, index: int) -> None:
        end = asyncio.get_running_loop().time() + SECONDS
        while True:
            log = (self.folder / str(index) / "log").read_text()
            with contextlib.suppress(OSError):
                self.value(index)
                if f"the member at {self.endpoints[index]} answers" in log:
                    return
            assert asyncio.get_running_loop().time() < end, log
            await asyncio.sleep(0.1)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    if os.getuid() != 0:
        pytest.skip("each member has namespaces of its own: this needs root")
    made = Members(tmp_path)
    yield made
    for process in made.processes.values():
        process.kill()
        process.wait()


async def test_one_of_three_comes_back_without_its_data_and_nothing_is_lost(members: Members) -> None:
    for index in range(3):
        members.start(index)
    for index in range(3):
        await members.until_it_answers(index)
    lease = (await members.does(0, "lease/grant", {"TTL": 600}))["ID"]
    await members.does(0, "kv/put", {"key": NODE, "value": "MQ==", "lease": lease})
    for index in range(3):  # each of them once, so that none of the first data is left
        members.lose(index)
        await members.until_value((index + 1) % 3, "MQ==")  # two of three answer
        members.start(index)
        await members.until_it_answers(index)
    for index in range(3):
        await members.until_value(index, "MQ==")
    listed = (await members.does(0, "cluster/member/list", {}))["members"]
    assert len(listed) == 3


async def test_where_a_majority_is_lost_an_empty_store_takes_its_place(members: Members) -> None:
    for index in range(3):
        members.start(index)
    for index in range(3):
        await members.until_it_answers(index)
    lease = (await members.does(0, "lease/grant", {"TTL": 600}))["ID"]
    await members.does(0, "kv/put", {"key": NODE, "value": "MQ==", "lease": lease})
    for index in (0, 1):
        members.lose(index)
    for index in (0, 1):
        members.start(index)
    for index in range(3):
        await members.until_it_answers(index)
    for index in range(3):
        await members.until_value(index, "")


async def test_sigterm_ends_a_member_in_order_and_it_comes_back_with_its_data(members: Members) -> None:
    del members.endpoints[1:]
    members.start(0)
    await members.until_it_answers(0)
    lease = (await members.does(0, "lease/grant", {"TTL": 600}))["ID"]
    await members.does(0, "kv/put", {"key": NODE, "value": "MQ==", "lease": lease})
    process = members.processes.pop(0)
    children = (Path("/proc") / str(process.pid) / "task" / str(process.pid) / "children").read_text().split()
    os.kill(int(children[0]), signal.SIGTERM)
    assert process.wait(timeout=SECONDS) == 0
    members.start(0)
    await members.until_it_answers(0)
    await members.until_value(0, "MQ==")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--rdzv-endpoint=a:1,b:1", "--member=c:1", "--listen=127.0.0.1", "--store-dir=x"), "is not among"),
        (("--rdzv-endpoint=a:1", "--member=a:1", "--listen=a", "--store-dir=x"), "does not appear to be an IPv4"),
        (("--rdzv-endpoint=a:1",), "--member"),
    ],
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], sentence: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "elastic_run", "store", *words], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 2 and sentence in done.stderr, done.stderr
