# The package has types in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportArgumentType=false, reportCallIssue=false
"""Requests to a Kubernetes API server: the only module that imports `kubernetes`.

That package finds the server and the credentials, keeps them fresh, and speaks HTTP. Objects are plain JSON here, both
ways: so no version of the package stands between a field and a server that knows it.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import DynamicApiError
from urllib3 import HTTPResponse, disable_warnings
from urllib3.exceptions import HTTPError, InsecureRequestWarning

from ....rendezvous.base.frozen import dataclass
from ..platform import PlatformError, PlatformRefused, PlatformUnavailable

Json = Mapping[str, Any]
"""An object as the API has it; its fields are whatever the server says (hence Any)."""

Query = Sequence[tuple[str, object]]
"""Of a request: names and values."""

THREADS = 32
"""Requests under way at one time."""

WATCHES = 8
"""Connections kept beside those, at most: a watch has one, and so has a log that is followed."""

TIMEOUT = (3.0, 15.0)
"""Seconds to connect, and to wait for an answer."""

WATCHED = 20
"""Seconds that a watch lives; then another goes on where it was. A connection that died in silence is noticed so."""

SILENCE = 5.0
"""Seconds beyond those, after which a watch that says nothing is given up."""

SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

GONE, CONFLICT, NOT_FOUND, UNAUTHORIZED, TOO_MANY = 410, 409, 404, 401, 429


class ApiRefused(PlatformRefused):
    """The server answered no. `status`: of HTTP; `reason`: the API's own word for it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class ApiUnavailable(PlatformUnavailable):
    """The server does not answer, or cannot now."""


class Gone(PlatformError):
    """The server does not keep changes from so long ago any more: list anew."""


@dataclass(frozen=True, slots=True)
class Event:
    """A change: ADDED, MODIFIED, DELETED or BOOKMARK, which only says how far the watch has come."""

    kind: str
    object: Json


class _NoDiscovery:
    """Paths are known here; without this, the client would ask the server for its resources, and keep a file."""

    def __init__(self, client: object, cache_file: object) -> None:
        pass


class Api:
    """One server, and a namespace.

    Args:
        source: a client with its configuration loaded.
        namespace: of the paths that `path` makes.
    """

    def __init__(self, source: client.ApiClient, namespace: str) -> None:
        self._dynamic = DynamicClient(source, discoverer=_NoDiscovery)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="kubernetes")
        self.namespace = namespace

    @classmethod
    def load(cls, namespace: str = "", kubeconfig: str | None = None, context: str | None = None) -> "Api":
        """As `kubectl` finds it, or inside of a pod by its service account.

        Raises:
            PlatformRefused: there is no configuration, or it cannot be used.
        """
        settings = client.Configuration()
        try:
            try:
                config.load_kube_config(kubeconfig, context, settings)
                contexts, active = config.list_kube_config_contexts(kubeconfig)
                chosen = next((each for each in contexts if each["name"] == context), active)
                namespace = namespace or chosen["context"].get("namespace", "")
            except ConfigException:
                if kubeconfig or context:
                    raise
                config.load_incluster_config(settings)
                namespace = namespace or SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
        except (ConfigException, OSError, KeyError) as error:
            raise PlatformRefused(f"no Kubernetes cluster is configured: {error}") from error
        settings.connection_pool_maxsize = THREADS + WATCHES
        settings.retries = False
        if not settings.verify_ssl:  # the kubeconfig says so, and its user knows
            disable_warnings(InsecureRequestWarning)
        return cls(client.ApiClient(settings), namespace or "default")

    def path(self, kind: str, name: str = "", part: str = "", group: str = "") -> str:
        """Of an object, or of all of its kind; `group` with its version, where it is not the core's."""
        root = f"/apis/{group}" if group else "/api/v1"
        return "/".join(filter(None, (f"{root}/namespaces/{self.namespace}/{kind}", name, part)))

    async def list(self, path: str, query: Query = ()) -> tuple[Sequence[Json], str]:
        """All objects there, and the version from which a watch goes on. Raises ApiRefused, ApiUnavailable."""
        found = await self.ask("get", path, query=query)
        try:
            return cast(Sequence[Json], found["items"] or ()), str(found["metadata"]["resourceVersion"])
        except (KeyError, TypeError):
            raise _senseless(found) from None

    async def ask(self, method: str, path: str, body: object = None, query: Query = (), patch: str = "merge") -> Json:
        """The answer to one request. Raises ApiRefused, ApiUnavailable."""
        run = asyncio.get_running_loop().run_in_executor
        return await run(self._threads, self.ask_now, method, path, body, query, patch)

    def ask_now(self, method: str, path: str, body: object = None, query: Query = (), patch: str = "merge") -> Json:
        """The same, in this thread."""
        kind = f"application/{patch}-patch+json" if method == "patch" else "application/json"
        with _spoken():
            answer = self._request(method, path, query, TIMEOUT, body, kind)
        return _object(answer.data)

    def text(self, path: str, query: Query = (), silence: float | None = None) -> Iterator[bytes]:
        """What the server sends, as it comes; `silence`: seconds after which it is given up.

        Raises:
            ApiRefused, ApiUnavailable
        """
        with _spoken():
            answer = self._request("get", path, query, (TIMEOUT[0], silence))
            try:
                yield from answer.stream(amt=None, decode_content=False)
            finally:
                answer.close()

    def watch(
        self, path: str, query: Query, version: str, put: Callable[[Event | PlatformError | None], None]
    ) -> Callable[[], None]:
        """Changes after `version`, each given to `put` in a thread of its own; None when the watch has lived its time.

        Returns:
            Ends it: nothing is put any more.
        """
        ended = threading.Event()

        def tell(what: Event | PlatformError | None) -> None:
            if not ended.is_set():
                put(what)

        def read() -> None:
            try:
                words = [*query, ("watch", "true"), ("allowWatchBookmarks", "true")]
                words += [("resourceVersion", version), ("timeoutSeconds", WATCHED)]
                for line in filter(None, lines_of(self.text(path, words, silence=WATCHED + SILENCE))):
                    if ended.is_set():
                        return
                    tell(_event(_object(line)))
            except PlatformError as error:
                gone = isinstance(error, ApiRefused) and error.status == GONE
                tell(Gone(str(error)) if gone else error)
            except Exception as error:  # noqa: BLE001  nobody sees how a thread ends, and a watch must not be silent
                tell(ApiUnavailable(f"a watch of the API server ended: {error!r}"))
            else:
                tell(None)

        threading.Thread(target=read, name="kubernetes-watch", daemon=True).start()
        return ended.set

    def _request(
        self,
        method: str,
        path: str,
        query: Query,
        timeout: tuple[float, float | None],
        body: object = None,
        kind: str = "application/json",
    ) -> HTTPResponse:
        return cast(
            HTTPResponse,
            self._dynamic.request(
                method,
                path,
                body=body,
                query_params=list(query),
                content_type=kind,
                serialize=False,
                _request_timeout=timeout,
            ),
        )

    def close(self) -> None:
        """Waits for nothing."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def lines_of(chunks: Iterator[bytes], *, rest: bool = False) -> Iterator[bytes]:
    """`rest`: the last one counts, too, where it has no end."""
    begun = b""
    for chunk in chunks:
        *whole, begun = (begun + chunk).split(b"\n")
        yield from whole
    if rest and begun:
        yield begun


def _object(text: bytes) -> Json:
    """Raises ApiUnavailable where that is none: a proxy on the way may say anything."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _senseless(text) from None
    if not isinstance(found, dict):
        raise _senseless(text)
    return cast(Json, found)


def _senseless(answer: object) -> ApiUnavailable:
    return ApiUnavailable(f"what answers is no API server of Kubernetes: {str(answer)[:200]!r}")


def _event(raw: Json) -> Event:
    """Raises ApiRefused where the server says that it goes on no further, ApiUnavailable where it is no event."""
    found = raw.get("object")
    if not isinstance(found, dict):
        raise _senseless(raw)
    if raw.get("type") == "ERROR":
        status = cast(Json, found)
        raise _refusal(int(status.get("code") or 500), status)
    event = Event(str(raw.get("type")), cast(Json, found))
    try:
        if str(event.object["metadata"]["resourceVersion"]):
            return event
    except (KeyError, TypeError):
        pass
    raise _senseless(raw)


def _refusal(status: int, body: Json, patience: str = "") -> PlatformError:
    message = str(body.get("message") or body or f"HTTP status {status}")
    if status == TOO_MANY or status >= 500:
        return ApiUnavailable(message, float(patience) if patience.isdigit() else 0.0)
    return ApiRefused(status, str(body.get("reason") or ""), message)


class _spoken:
    """Turns what the package and urllib3 raise into this module's errors."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, DynamicApiError | client.ApiException):
            if not error.status:  # as the package tells of a certificate: there was no answer
                raise ApiUnavailable(" ".join(str(error.reason).split())) from None
            try:
                body = _object(cast(bytes, error.body or b"{}"))
            except ApiUnavailable:
                body = {"message": str(error.body)}
            patience = str((error.headers or {}).get("Retry-After", ""))
            raise _refusal(int(error.status or 500), body, patience) from None
        if isinstance(error, HTTPError | OSError | ConfigException):  # the last: a token's file that is being replaced
            raise ApiUnavailable(f"{type(error).__name__}: {error}") from error
