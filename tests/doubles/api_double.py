"""A double of a Kubernetes API server, over real HTTP: for what a real one does not do on command.

    with ApiDouble(folder) as double:
        api = Api.load("team", str(double.kubeconfig))
        double.fault(Fault(verb="create", plural="pods", status=500))
        double.expire_watches()

It keeps objects (`double_objects.py`). Of controllers it has the garbage collector alone; its machines are `Machines`.
What it claims to do as a real server does, `test_conformance.py` asks of both.
"""

import contextlib
import http.server
import json
import re
import secrets
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from .double_objects import ADMIN, Change, Machines, Objects, Place, Refused, Selector, now, token_of

Json = Any
"""An object of the API."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `verb`: as in a Role; `by`: the token that came with it; `at`: of the monotonic clock."""

    verb: str
    place: Place
    name: str
    part: str
    query: Mapping[str, str]
    body: Json
    by: str
    at: float

    def __str__(self) -> str:
        return " ".join(filter(None, (self.verb, self.place.plural, self.name, self.part)))


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, in the requests that it is for.

    Attributes:
        verb, plural: of those requests; empty: of any.
        times: so many of them; 0: all, until `ApiDouble.heal`.
        done: what was asked for is done before it goes wrong.
        delay: seconds before anything else.
        status: the answer is that of HTTP; 0: it is the right one.
        headers: of that answer.
        body: of that answer, in place of a Status.
        hang: there is no answer, and the connection stays open until `ApiDouble.heal`.
        close: there is no answer, and the connection is closed.
    """

    verb: str = ""
    plural: str = ""
    times: int = 1
    done: bool = False
    delay: float = 0.0
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    hang: bool = False
    close: bool = False

    def hits(self, asked: Asked) -> bool:
        """Whether it is for that request."""
        return self.verb in ("", asked.verb) and self.plural in ("", asked.place.plural)


class Cut(Exception):
    """Raised by `ApiDouble.before` or `after`: the connection ends without an answer."""


@dataclass(eq=False)
class Watch:
    """One that is open. `orders`: what is to happen to it."""

    asked: Asked
    orders: deque[str] = field(default_factory=deque)


class ApiDouble:
    """Starts with the context, and ends with it.

    Args:
        folder: for its kubeconfig.
        places: see `Machines`.
        classes: see `Machines`.
        namespace: that is there from the start, and the kubeconfig's.
        host: on which it listens.
        tls: with a certificate of its own, which the kubeconfig trusts.

    Attributes:
        asked: all requests, oldest first.
        before, after: called with each request before it is done, and when it is done but not answered.
        gone_as_event: a watch from a version that is gone has an ERROR event in an answer of 200, and not HTTP's 410.
    """

    def __init__(
        self,
        folder: Path,
        places: int | None = None,
        classes: Mapping[str, int] | None = None,
        namespace: str = "team",
        host: str = "127.0.0.1",
        tls: bool = False,
    ) -> None:
        self.objects = Objects()
        self.machines = Machines(self.objects, places, classes or {})
        self.asked: list[Asked] = []
        self.before: Callable[[Asked], None] = lambda asked: None
        self.after: Callable[[Asked], None] = lambda asked: None
        self.gone_as_event = True
        self.namespace = namespace
        self.token = secrets.token_hex(8)
        self.kubeconfig = folder / "kubeconfig"
        self._folder = folder
        self._host = host
        self._tls = tls
        self.users = {self.token: ADMIN}
        self._faults: list[tuple[Fault, list[int]]] = []
        self._watches: list[Watch] = []
        self._old_lists: Objects | None = None
        self._healed = threading.Event()
        self._over = threading.Event()
        self._server: http.server.ThreadingHTTPServer | None = None
        self._port = 0
        self._connections: set[socket.socket] = set()
        self.objects.create(Place("v1", "", "namespaces"), {"metadata": {"name": namespace}})

    def __enter__(self) -> "ApiDouble":
        self._folder.mkdir(parents=True, exist_ok=True)
        self.up()
        self._write_kubeconfig()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self.heal()
        with self.objects.changed:
            self.objects.changed.notify_all()
        self.down()

    @property
    def url(self) -> str:
        """Without a path."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self._port}"

    # -- faults ---------------------------------------------------------------------------------------------------

    def fault(self, *faults: Fault) -> None:
        """The next requests that each is for are served so."""
        self._faults += [(each, [each.times]) for each in faults]

    def heal(self) -> None:
        """No fault any more; what hangs is closed."""
        self._faults.clear()
        before, self._healed = self._healed, threading.Event()
        before.set()

    def down(self) -> None:
        """Nobody listens, and all connections are closed."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        for each in list(self._connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def up(self) -> None:
        """It listens (again), at the same address."""
        double = self

        class Handler(_Handler):
            pass

        Handler.double = double

        class Server(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in double._host else socket.AF_INET
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # whoever asked has gone

        self._server = Server((self._host, self._port), Handler)
        if self._tls:
            self._server.socket = self._context().wrap_socket(self._server.socket, server_side=True)
        self._port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="double", daemon=True
        ).start()

    def drop_watches(self) -> None:
        """The connection of each watch that is open is closed in the middle."""
        self._order("drop")

    def end_watches(self) -> None:
        """Each watch that is open ends in order, as when its time is over."""
        self._order("end")

    def stall_watches(self) -> None:
        """Nothing more is sent to those that are open, and nobody closes them."""
        self._order("stall")

    def expire_watches(self) -> None:
        """Those that are open are told that their version is gone; another must begin at the present one."""
        self.objects.compact()
        self._order("gone")

    def bookmark_watches(self) -> None:
        """Those that are open and want bookmarks get one."""
        self._order("bookmark")

    def garble_watches(self) -> None:
        """Those that are open get half of a line, and are closed."""
        self._order("garble")

    def old_lists(self) -> None:
        """Lists are as they are now, whatever is changed, until `new_lists`: a server that is behind."""
        with self.objects.changed:
            self._old_lists = self.objects.copied()

    def new_lists(self) -> None:
        """Lists are as everything is."""
        self._old_lists = None

    # -- looking --------------------------------------------------------------------------------------------------

    def place(self, plural: str, group: str = "v1", namespace: str | None = None) -> Place:
        """Where objects of that kind are, in its namespace."""
        return Place(group, self.namespace if namespace is None else namespace, plural)

    def all(self, plural: str, group: str = "v1") -> dict[str, Json]:
        """Objects of that kind by name, in its namespace."""
        return {each["metadata"]["name"]: each for each in self.objects.find(self.place(plural, group))}

    def count(self, verb: str, plural: str) -> int:
        """Requests of that kind."""
        return sum((each.verb, each.place.plural) == (verb, plural) for each in list(self.asked))

    def made(self, plural: str = "pods") -> list[str]:
        """Names of all that were ever created."""
        new = [each for each in list(self.objects.history) if each.kind == "ADDED" and each.place.plural == plural]
        return [each.after["metadata"]["name"] for each in new]

    @property
    def watching(self) -> int:
        """Watches that are open."""
        return len(self._watches)

    def kubeconfig_of(self, account: str, name: str = "") -> Path:
        """A kubeconfig with a service account's token."""
        token = token_of(self.namespace, account) + name
        self.users[token] = f"system:serviceaccount:{self.namespace}:{account}"
        path = self._folder / f"kubeconfig-{account}{name}"
        self._write_kubeconfig(path, token)
        return path

    # -- inside ---------------------------------------------------------------------------------------------------

    def _order(self, what: str) -> None:
        with self.objects.changed:
            for each in self._watches:
                each.orders.append(what)
            self.objects.changed.notify_all()

    def _fault_of(self, asked: Asked) -> Fault | None:
        with self.objects.changed:
            for fault, left in self._faults:
                if fault.hits(asked) and (left[0] or not fault.times):
                    left[0] -= 1
                    return fault
        return None

    def _user(self, token: str) -> str:
        try:
            return self.users[token]
        except KeyError:
            raise Refused(401, "Unauthorized", "Unauthorized") from None

    def _context(self) -> ssl.SSLContext:
        key, certificate = self._folder / "key.pem", self._folder / "ca.crt"
        if not key.exists():
            names = f"subjectAltName=IP:{self._host}"
            subject = ["-subj", "/CN=double", "-addext", names]
            command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
            output = ["-keyout", key, "-out", certificate]
            subprocess.run([*command, *output], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context

    def _write_kubeconfig(self, path: Path | None = None, token: str = "") -> None:
        cluster = {"server": self.url}
        if self._tls:
            cluster["certificate-authority"] = str(self._folder / "ca.crt")
        context = {"cluster": "double", "user": "user", "namespace": self.namespace}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "double", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token or self.token}}],
            "contexts": [{"name": "double", "context": context}],
            "current-context": "double",
        }
        (path or self.kubeconfig).write_text(json.dumps(document))


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    double: ApiDouble

    def setup(self) -> None:
        super().setup()
        self.double._connections.add(self.connection)

    def finish(self) -> None:
        self.double._connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _serve(self) -> None:
        double = self.double
        length = int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(length) if length else b""
        if self.path in ("/readyz", "/healthz", "/livez"):
            self._send(200, b"ok")
            return
        try:
            asked = self._read(text)
            fault = double._fault_of(asked)
            double.asked.append(asked)
            double.before(asked)
            if fault is None:
                self._answer(asked)
            else:
                self._fail(asked, fault)
        except Cut:
            self.close_connection = True
        except Refused as error:
            self._send(error.status, json.dumps(error.body).encode())

    def _fail(self, asked: Asked, fault: Fault) -> None:
        double = self.double
        if fault.delay:
            double._healed.wait(fault.delay)
        if fault.done:
            self._done(asked)
        if fault.hang:
            healed = double._healed
            healed.wait()
            self.close_connection = True
        elif fault.close:
            self.close_connection = True
        elif fault.status:
            refusal = Refused(fault.status, "InternalError", f"the double was told to answer {fault.status}")
            self._send(fault.status, fault.body or json.dumps(refusal.body).encode(), fault.headers)
        elif not fault.done:
            self._answer(asked)

    def _answer(self, asked: Asked) -> None:
        if asked.verb == "watch":
            self._allowed(asked)
            self._watch(asked)
            return
        status, found = self._done(asked)
        self.double.after(asked)
        text = found if isinstance(found, bytes) else json.dumps(found).encode()
        self._send(status, text)

    def _allowed(self, asked: Asked) -> None:
        user = self.double._user(asked.by)
        place = asked.place
        if not self.double.objects.allows(user, asked.verb, place, asked.part, asked.name):
            group = place.group.rpartition("/")[0]
            part = f"/{asked.part}" if asked.part else ""
            what = f'{place.resource} "{asked.name}"' if asked.name else place.resource
            raise Refused(
                403,
                "Forbidden",
                f'{what} is forbidden: User "{user}" cannot {asked.verb} resource "{place.plural}{part}" in API group '
                f'"{group}" in the namespace "{place.namespace}"',
            )

    def _done(self, asked: Asked) -> tuple[int, Json]:
        """What was asked for: the status, and the answer. Raises Refused."""
        self._allowed(asked)
        objects, place, name, part = self.double.objects, asked.place, asked.name, asked.part
        if place.plural == "serviceaccounts" and part == "token":
            objects.get(place, name)
            token = token_of(place.namespace, name)
            self.double.users[token] = f"system:serviceaccount:{place.namespace}:{name}"
            return 201, {"kind": "TokenRequest", "status": {"token": token, "expirationTimestamp": now(3600)}}
        if part == "log":
            objects.get(place, name)
            return 200, b""
        if part not in ("", "status"):
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        match asked.verb:
            case "get":
                return 200, objects.get(place, name)
            case "list":
                return 200, self._list(asked)
            case "create":
                return 201, objects.create(place, asked.body)
            case "patch":
                return 200, objects.patch(place, name, asked.body, part)
            case "update":
                return 200, objects.replace(place, name, asked.body, part)
            case "delete":
                options = dict(asked.body or {})
                options |= {key: asked.query[key] for key in ("propagationPolicy",) if key in asked.query}
                if "gracePeriodSeconds" in asked.query:
                    options["gracePeriodSeconds"] = int(asked.query["gracePeriodSeconds"])
                return 200, objects.delete(place, name, options)
            case "deletecollection":
                for each in objects.find(place, _selector(asked)):
                    objects.delete(place, each["metadata"]["name"], asked.body or {})
                return 200, self._list(asked)
            case verb:
                raise Refused(405, "MethodNotAllowed", f"{verb} is not known")

    def _list(self, asked: Asked) -> Json:
        objects = self.double._old_lists or self.double.objects
        with objects.changed:
            found = objects.find(asked.place, _selector(asked))
            version = str(objects.revision)
        group = asked.place.group
        found = [{key: value for key, value in each.items() if key not in ("kind", "apiVersion")} for each in found]
        return {"kind": "List", "apiVersion": group, "metadata": {"resourceVersion": version}, "items": found}

    def _read(self, text: bytes) -> Asked:
        parts = urllib.parse.urlsplit(self.path)
        query = {key: values[-1] for key, values in urllib.parse.parse_qs(parts.query).items()}
        match = re.fullmatch(r"/(?:api/(v1)|apis/([^/]+/[^/]+))(/namespaces/[^/]+(?=/))?/([^/]+)(.*)", parts.path)
        if not match:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        group, within, plural = match[1] or match[2], match[3] or "", match[4]
        namespace = within.removeprefix("/namespaces/")
        words = match[5].strip("/").split("/")
        name, part = urllib.parse.unquote(words[0]), words[1] if len(words) > 1 else ""
        one = {"POST": "create", "PUT": "update", "PATCH": "patch"}
        if self.command == "GET":
            verb = "get" if name else "watch" if query.get("watch") in ("true", "1") else "list"
        elif self.command == "DELETE":
            verb = "delete" if name else "deletecollection"
        else:
            verb = one[self.command]
        try:
            body = json.loads(text) if text else None
        except ValueError:
            raise Refused(400, "BadRequest", "the body is no JSON") from None
        kind = self.headers.get("Content-Type", "")
        if verb == "patch" and kind not in MERGING:
            raise Refused(415, "UnsupportedMediaType", f"the double merges only, and this is {kind}")
        token = self.headers.get("Authorization", "").partition(" ")[2]
        return Asked(verb, Place(group, namespace, plural), name, part, query, body, token, time.monotonic())

    def _send(self, status: int, text: bytes, headers: Mapping[str, str] | None = None) -> None:
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

    # -- watches --------------------------------------------------------------------------------------------------

    def _watch(self, asked: Asked) -> None:
        double, objects = self.double, self.double.objects
        given = asked.query.get("resourceVersion", "0")
        if not given.isdigit():
            raise Refused(400, "Invalid", f"resourceVersion: Invalid value: {given!r}")
        begin = int(given)
        watch = Watch(asked)
        with objects.changed:
            if begin > objects.revision:
                words = f"Timeout: Too large resource version: {begin}, current: {objects.revision}"
                raise Refused(504, "Timeout", words)
            gone = 0 < begin < objects.compacted
            if gone and not double.gone_as_event:
                raise Refused(410, "Expired", f"too old resource version: {begin} ({objects.compacted})")
            seen = len(objects.history)
            while begin and seen and objects.history[seen - 1].revision > begin:
                seen -= 1
            first = [] if begin else objects.find(asked.place, _selector(asked))
            double._watches.append(watch)
        try:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if gone:
                watch.orders.append("gone")
            for each in first:
                self._event("ADDED", each)
            self._tell(watch, seen)
        except OSError:
            self.close_connection = True
        finally:
            with objects.changed:
                double._watches.remove(watch)

    def _tell(self, watch: Watch, seen: int) -> None:
        objects, asked = self.double.objects, watch.asked
        selector = _selector(asked)
        until = time.monotonic() + float(asked.query.get("timeoutSeconds", 1800))
        bookmarks = asked.query.get("allowWatchBookmarks") in ("true", "1")
        stalled = False
        while True:
            with objects.changed:
                left = None if stalled else max(0.0, until - time.monotonic())
                objects.changed.wait_for(partial(self._is_due, watch, seen, stalled), left)
                order = watch.orders.popleft() if watch.orders else ""
                stalled = stalled or order == "stall"
                new, seen = ([], seen) if stalled else (objects.history[seen:], len(objects.history))
                version = objects.revision
            for change in new:
                if asked.place.holds(change.place):
                    self._change(selector, change)
            match order:
                case "drop":
                    self.close_connection = True
                    return
                case "garble":
                    self._chunk(b'{"type": "MODIFIED", "obj')
                    self._chunk(b"")
                    return
                case "gone":
                    words = f"too old resource version: {asked.query.get('resourceVersion')} ({version})"
                    self._event("ERROR", Refused(410, "Expired", words).body)
                    self._chunk(b"")
                    return
                case "bookmark" if bookmarks:
                    self._bookmark(asked, version)
                case _:
                    pass
            over = self.double._over.is_set()
            if over or ((order == "end" or time.monotonic() >= until) and not stalled):
                if bookmarks and not over:
                    self._bookmark(asked, version)
                self._chunk(b"")
                return

    def _is_due(self, watch: Watch, seen: int, stalled: bool) -> bool:
        more = len(self.double.objects.history) > seen and not stalled
        return self.double._over.is_set() or bool(watch.orders) or more

    def _change(self, selector: Selector, change: Change) -> None:
        was, is_now = selector.takes(change.before), selector.takes(change.after) and change.kind != "DELETED"
        if is_now:
            self._event("MODIFIED" if was else "ADDED", change.after)
        elif was:
            last = change.before if change.kind != "DELETED" else change.after
            version = {"resourceVersion": str(change.revision)}
            self._event("DELETED", {**last, "metadata": {**last["metadata"], **version}})

    def _bookmark(self, asked: Asked, version: int) -> None:
        self._event("BOOKMARK", {"apiVersion": asked.place.group, "metadata": {"resourceVersion": str(version)}})

    def _event(self, kind: str, found: Json) -> None:
        self._chunk(json.dumps({"type": kind, "object": found}).encode() + b"\n")

    def _chunk(self, text: bytes) -> None:
        """An empty one is the last."""
        self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")


MERGING = ("application/merge-patch+json", "application/strategic-merge-patch+json")


def _selector(asked: Asked) -> Selector:
    return Selector.read(asked.query.get("labelSelector", ""), asked.query.get("fieldSelector", ""))
