"""A dashboard whose job does not answer: who else is served meanwhile, and what the last page says."""

import asyncio
import contextlib
import re
import select
import socket
import threading
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import pytest

from elastic_run.launcher import bounded_server
from elastic_run.launcher.bounded_server import ENDING, ROOM
from elastic_run.launcher.dashboard import server
from elastic_run.launcher.dashboard.server import AT_ONCE, served
from elastic_run.launcher.dashboard.site import HEADERS
from elastic_run.launcher.history.journal import Journal
from elastic_run.launcher.history.records import Begun
from elastic_run.master.diagnosis.evidence import NodeEvidence
from elastic_run.master.diagnosis.requests import Look
from elastic_run.master.status import Status
from elastic_run.rendezvous.header import Header, HeaderState
from elastic_run.rendezvous.member import Fingerprint
from elastic_run.rendezvous.reasons import AllJoined
from elastic_run.rendezvous.store.endpoint import Endpoint

DEADLINE = 40.0
"""Seconds that anything here may take on a busy machine."""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(server, "PATIENCE", DEADLINE)


@dataclass
class Page:
    """A dashboard, the double of a job behind it, and the browsers that look at it."""

    journal: Journal
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    silent: asyncio.Event = field(default_factory=asyncio.Event)  # nobody answers before it is set
    browsers: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    port: int = 0
    token: str = ""

    async def ask(self) -> Status:
        self.asked.set()
        await self.silent.wait()
        raise ConnectionError("the job has no master")

    async def look(self, node: str, wanted: Look) -> NodeEvidence:
        raise ConnectionError(f"{node} is not looked at here")

    def say(self, line: str) -> None:
        found = re.search(r":(\d+)/\?token=(\S+)", line)
        assert found, line
        self.port, self.token = int(found[1]), found[2]

    def asks(self, path: str) -> socket.socket:
        """A browser that waits for an answer."""
        browser = self.browsers.enter_context(socket.create_connection(("127.0.0.1", self.port), DEADLINE))
        browser.sendall(f"GET {path} HTTP/1.0\r\nAuthorization: Bearer {self.token}\r\n\r\n".encode())
        return browser

    async def get(self, path: str) -> str:
        return await asyncio.to_thread(answer, self.asks(path))


def answer(browser: socket.socket) -> str:
    """What a browser was answered; empty where its connection was closed."""
    with browser, browser.makefile(errors="replace") as file, contextlib.suppress(ConnectionError):
        return file.read()
    return ""


@contextlib.asynccontextmanager
async def dashboard() -> AsyncGenerator[Page]:
    begun = Begun(0.0, "job", "A", "host", "train.py", "1", 1, "0")
    page = Page(Journal(begun, None, print))
    with page.browsers:
        async with served(Endpoint("127.0.0.1", 0), page.journal, page.ask, page.look, page.say):
            try:
                yield page
            finally:
                page.silent.set()


async def test_looks_at_a_node_that_does_not_answer_hold_nobody_up() -> None:
    async with dashboard() as page:
        first = page.asks("/rank?number=0")
        await asyncio.wait_for(page.asked.wait(), DEADLINE)
        again = [page.asks("/rank?number=0") for _ in range(AT_ONCE - 2)]
        for browser in again:
            assert "another look is under way" in await asyncio.to_thread(answer, browser)
        assert (await page.get("/health")).endswith("ok\n")
        page.silent.set()
        assert "the job has no master" in await asyncio.to_thread(answer, first)


async def test_a_probe_is_answered_while_as_many_pages_as_there_may_be_are_made() -> None:
    async with dashboard() as page:
        browsers = [page.asks("/") for _ in range(AT_ONCE + 1)]
        assert (await page.get("/health")).endswith("ok\n")
        refused = (await asyncio.to_thread(select.select, browsers, [], [], DEADLINE))[0]
        assert refused, "one more than there may be waits for nobody"
        page.silent.set()
        answers = [await asyncio.to_thread(answer, browser) for browser in browsers]
        assert sorted(text.split()[1] for text in answers) == ["200"] * AT_ONCE + ["503"]


def drips(browser: socket.socket, pause: float) -> bool:
    """Sends a request that never ends until it is hung up on; False where that takes too long."""
    until = time.monotonic() + DEADLINE
    with contextlib.suppress(ConnectionError):
        browser.sendall(b"GET / HTTP/1.0\r\nX: ")
        while time.monotonic() < until:
            browser.sendall(b"x")
            time.sleep(pause)
        return False
    return True


async def test_a_request_that_comes_byte_by_byte_has_no_more_time_than_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_server, "SILENT", 1.0)
    async with dashboard() as page:
        browser = page.browsers.enter_context(socket.create_connection(("127.0.0.1", page.port), DEADLINE))
        assert await asyncio.to_thread(drips, browser, 0.1)


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.0\r\nX: "], ids=["silent", "slow"])
async def test_connections_without_a_request_keep_no_probe_out(begin: bytes) -> None:
    async with dashboard() as page:
        for _ in range(2 * (ROOM + ENDING)):
            slow = page.browsers.enter_context(socket.create_connection(("127.0.0.1", page.port), DEADLINE))
            with contextlib.suppress(ConnectionError):
                slow.sendall(begin)
        assert (await page.get("/health")).endswith("ok\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [(b"PUT / HTTP/1.0\r\n\r\n", "501"), (b"GET / x y\r\n\r\n", "400"), (b"GET /%s" % (b"x" * 70_000), "414")],
    ids=["another method", "no request", "too long"],
)
async def test_what_is_no_request_is_answered_with_the_same_headers(request_: bytes, status: str) -> None:
    async with dashboard() as page:
        browser = page.browsers.enter_context(socket.create_connection(("127.0.0.1", page.port), DEADLINE))
        browser.sendall(request_)
        head = (await asyncio.to_thread(answer, browser)).partition("\n\n")[0]
        assert head.split()[1] == status
        assert all(f"{name}: {value}" in head for name, value in HEADERS.items())


def header(state: HeaderState, number: int) -> Header:
    fingerprint = Fingerprint("train.py", (), "1", "1", "0")
    return Header(number, "run", state, "start", AllJoined(1), fingerprint, nodes=1, world_size=1)


async def test_a_job_that_is_over_needs_no_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FRESH", 0.0)
    async with dashboard() as page:
        page.silent.set()
        page.journal.header(header("open", 1), mine=True)
        assert "no master" in await page.get("/")
        page.journal.header(header("succeeded", 2), mine=True)
        last = await page.get("/")
        assert "succeeded" in last and "no master" not in last


async def test_the_dashboard_is_there_until_each_open_page_has_its_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LAST", DEADLINE)
    async with contextlib.AsyncExitStack() as stack:
        page = await stack.enter_async_context(dashboard())
        page.silent.set()
        for path in ("/", "/part?page=a", "/part?page=b"):
            assert "200 OK" in await page.get(path)
        ends = asyncio.create_task(stack.aclose())
        for _ in range(10):
            assert "200 OK" in await page.get("/part?page=a")
            await asyncio.wait([ends], timeout=0.1)
        async with asyncio.timeout(DEADLINE / 2):
            while not ends.done():
                with contextlib.suppress(OSError):
                    await page.get("/part?page=b")
        await ends


async def test_an_answer_that_is_not_written_yet_keeps_the_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LAST", DEADLINE)
    write, made, may_go = BaseHTTPRequestHandler.end_headers, threading.Event(), threading.Event()
    ending = False

    def held(handler: BaseHTTPRequestHandler) -> None:
        """The page is made, and its connection takes nothing yet."""
        if ending:
            made.set()
            may_go.wait(DEADLINE)
        write(handler)

    monkeypatch.setattr(BaseHTTPRequestHandler, "end_headers", held)
    async with contextlib.AsyncExitStack() as stack:
        page = await stack.enter_async_context(dashboard())
        page.silent.set()
        assert "200 OK" in await page.get("/part?page=a")
        ends = asyncio.create_task(stack.aclose())
        await asyncio.wait([ends], timeout=0.1)
        ending = True
        browser = page.asks("/part?page=a")
        assert await asyncio.to_thread(made.wait, DEADLINE)
        assert not (await asyncio.wait([ends], timeout=1.0))[0]
        may_go.set()
        assert "200 OK" in await asyncio.to_thread(answer, browser)
        async with asyncio.timeout(DEADLINE / 2):
            while not ends.done():
                with contextlib.suppress(OSError):
                    await page.get("/part?page=a")
        await ends
