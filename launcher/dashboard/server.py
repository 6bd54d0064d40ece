"""The dashboard's HTTP server, in a thread of its own: nobody who looks at it can hold the agent up.

It asks the agent's event loop for what is known, at most once a second, and makes the page in its own thread.
"""

import asyncio
import contextlib
import secrets
import socket
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from http import HTTPStatus

from ...master.diagnosis.evidence import NodeEvidence
from ...master.diagnosis.examination import SECONDS
from ...master.diagnosis.requests import Look
from ...rendezvous.base.errors import RendezvousError
from ...rendezvous.store.endpoint import Endpoint
from ..bounded_server import BoundedHandler, BoundedServer
from ..history.journal import Asks, Journal, with_tail
from ..history.records import Ended, Record, Snapshot
from ..report.page import body, rank_page
from ..report.story import File, tell
from ..terminal.rank_lines import log_lines, stack_lines
from .site import BUSY, HEADERS, Request, Response, Site, answer_in_words

FRESH = 1.0
"""Seconds for which an answer is good."""

PATIENCE = 5.0
"""Seconds for the agent's event loop, and for the job's master."""

AT_ONCE = 8
"""Pages that are made; one more is refused."""

TOKEN_BYTES = 24

LOOKING = SECONDS + PATIENCE
"""Seconds for the agent of a rank's node, which looks at it."""

LAST = 3.0
"""Seconds for who looks at the page to see the end of the job; a page is asked for again each two seconds."""

Looks = Callable[[str, Look], Awaitable[NodeEvidence]]
"""The agent of a node says what it sees of its workers; raises RendezvousError or OSError."""


class View:
    """What the page shows: this node's events, and the job as its master sees it."""

    def __init__(self, journal: Journal, ask: Asks, look: Looks, loop: asyncio.AbstractEventLoop) -> None:
        self._journal = journal
        self._ask = ask
        self._look_at = look
        self._loop = loop
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._shown = threading.Condition()
        self._viewers: dict[str, float] = {}  # open pages: when each asked for what it shows
        self._made, self._made_at = "", float("-inf")
        self._status: Snapshot | None = None
        self._tails: dict[tuple[int, int], Record] = {}

    @property
    def title(self) -> str:
        """The job's id."""
        return self._journal.kept.begun.job if self._journal.kept.begun else ""

    def main(self) -> str:
        """What the page holds now; of any thread but the loop's."""
        with self._lock:
            if time.monotonic() - self._made_at >= FRESH:
                self._made = self._make()
                self._made_at = time.monotonic()
            return self._made

    def shown(self, path: str, asked: float) -> None:
        """The answer to what was asked at `asked` is on its way to an open page, which each `path` but "/" names."""
        with self._shown:
            if path not in self._viewers:
                self._viewers.pop("/", None)  # that page, which has a name of its own from now on
            recent = {each: at for each, at in self._viewers.items() if asked - at < LAST}
            self._viewers = recent | {path: asked}
            self._shown.notify_all()

    def await_last(self) -> None:
        """Each page that was shown lately is shown as it is now, before it is gone; waits LAST seconds for that."""
        with self._lock:
            self._made_at = float("-inf")
        now = time.monotonic()
        with self._shown:
            pages = [each for each, at in self._viewers.items() if now - at < LAST]
            self._shown.wait_for(lambda: all(self._viewers.get(each, now) >= now for each in pages), LAST)

    def healthy(self) -> bool:
        """The agent's event loop has its turns."""
        asked = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop)
        try:
            asked.result(PATIENCE)
        except TimeoutError:
            asked.cancel()
            return False
        return True

    def rank(self, number: int) -> str:
        """One rank as it is now, asked of its node's agent; of any thread but the loop's, and one at a time."""
        if not self._looking.acquire(blocking=False):
            return rank_page(number, "", (), (), f"another look is under way, for {2 * LOOKING:g} s at most")
        try:
            asked = asyncio.run_coroutine_threadsafe(self._see(number), self._loop)
            try:
                return asked.result(2 * LOOKING + 1.0)
            except TimeoutError:
                asked.cancel()
                return rank_page(number, "", (), (), "the agent is busy")
        finally:
            self._looking.release()

    async def _see(self, number: int) -> str:
        """In the event loop."""
        where = ""
        try:
            async with asyncio.timeout(2 * LOOKING):
                status = await self._ask()
                node = status.node_of(number)
                if node is None:
                    return rank_page(number, "", (), (), f"round {status.round} has no such rank")
                where = f"on node {node.node}, in round {status.round}"
                seen = await self._look_at(node.node, Look(status.round, rank=number))
                printed = await self._look_at(node.node, Look(status.round, rank=number, tail=True))
        except (RendezvousError, OSError) as error:  # TimeoutError is one
            return rank_page(number, where, (), (), str(error) or f"no answer within {2 * LOOKING:g} s")
        return rank_page(number, where, stack_lines(seen, number), log_lines(printed, number))

    def _make(self) -> str:
        asked = asyncio.run_coroutine_threadsafe(self._look(), self._loop)
        try:
            records, trouble = asked.result(PATIENCE + 1.0)
        except TimeoutError:
            asked.cancel()
            return self._made or "<p>The agent is busy.</p>"
        story = tell([File("", tuple(map(self._with_tail, records)))], now=time.time())
        trouble = trouble and not (story and story.over)
        words = "<p class='warn' role='status'>The job has no master that answers now.</p>" if trouble else ""
        return words + (body(story, live=True) if story else "<p>The job has not begun.</p>")

    async def _look(self) -> tuple[tuple[Record, ...], bool]:
        """In the event loop."""
        trouble = False
        try:
            async with asyncio.timeout(PATIENCE):
                self._status = Snapshot(time.time(), await self._ask())
                self._journal.heard(self._status.status)
        except (RendezvousError, OSError):  # TimeoutError is one
            trouble = True
        kept = tuple(each for each in self._journal.kept if not isinstance(each, Snapshot))
        return (*kept, *((self._status,) if self._status else ())), trouble

    def _with_tail(self, record: Record) -> Record:
        """Each log is read once."""
        if not isinstance(record, Ended):
            return record
        key = record.exit.round, record.exit.pid
        if key not in self._tails:
            self._tails[key] = with_tail(record)
        return self._tails[key]


class Server(BoundedServer):
    """Answers for one `View`. Raises OSError where the address cannot be used."""

    def __init__(self, where: Endpoint, view: View, token: str) -> None:
        super().__init__(where.host, where.port, _Handler)
        self.view = view
        self.site = Site(token, f"elastic_run_{self.server_address[1]}")
        self.pages = threading.Semaphore(AT_ONCE)


class _Handler(BoundedHandler):
    server_version = "elastic-run"
    sys_version = ""
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]  the only one that makes it

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a request's line may hold the token."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no request, or asks for what no page takes, is answered as any other."""
        self.request_version = "HTTP/1.0"  # else what was not understood would be answered without headers
        self.close_connection = True
        self._send(answer_in_words(HTTPStatus(code)))

    def _answer(self) -> None:
        request = Request(
            self.command, self.path, self.headers.get("Cookie", ""), self.headers.get("Authorization", "")
        )
        if request.is_probe:
            self._send(self._made(request))
        elif not self.server.pages.acquire(blocking=False):
            self._send(answer_in_words(HTTPStatus.SERVICE_UNAVAILABLE, BUSY))
        else:
            try:
                asked = time.monotonic()
                response = self._made(request)
                self._send(response)
                if request.shows_job and response.status == HTTPStatus.OK:
                    self.server.view.shown(request.path, asked)
            finally:
                self.server.pages.release()

    do_GET = do_HEAD = do_POST = _answer

    def _made(self, request: Request) -> Response:
        view = self.server.view
        return self.server.site.answer(request, view.title, view.main, view.rank, view.healthy)

    def _send(self, response: Response) -> None:
        text = response.body.encode(errors="replace")
        self.send_response(response.status)
        for name, value in {**HEADERS, **response.headers}.items():
            self.send_header(name, value)
        if response.status != HTTPStatus.SEE_OTHER and "Content-Type" not in response.headers:
            self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)


@contextlib.asynccontextmanager
async def served(
    where: Endpoint, journal: Journal, ask: Asks, look: Looks, say: Callable[[str], None]
) -> AsyncGenerator[None]:
    """The dashboard is served while the context lasts. One that cannot be is said, and the job goes on."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        server = Server(where, View(journal, ask, look, asyncio.get_running_loop()), token)
    except OSError as error:
        say(f"--dashboard={where}: {error.strerror}: the job runs without it")
        yield
        return
    everywhere = where.host in ("0.0.0.0", "::")
    shown = Endpoint(socket.gethostname() if everywhere else where.host, server.server_address[1])
    say(f"dashboard: http://{shown}/?token={token}")
    if not where.loopback:
        say(
            "the dashboard is served without TLS: anyone who can read the network traffic can read its token; use ssh "
            "-L and loopback"
        )
    async with server.serving("dashboard"):
        try:
            yield
        finally:
            await asyncio.to_thread(server.view.await_last)
