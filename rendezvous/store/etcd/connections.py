"""Endpoints of an etcd cluster and what their answers mean: connections, single attempts, and whose turn is next.

Nothing here decides what to do about a failure; `etcd_store.py` and `watch.py` do. `grpc` is used here only.
"""

import _thread
import asyncio
import contextlib
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

from google.protobuf.message import Message

from ...base.errors import LeaseLost, NoThreads, StoreError, StoreRefused
from ...base.frozen import dataclass, field
from ...host.named_files import LARGEST_SETTINGS, read_named
from .grpc_import import aio, grpc

_OPTIONS: Sequence[tuple[str, int | str]] = (
    ("grpc.enable_http_proxy", 0),  # a proxy for the web must not see (or refuse) the cluster's own traffic
    ("grpc.service_config_disable_resolution", 1),  # no TXT look-ups in the user's name service
    ("grpc.dns_min_time_between_resolutions_ms", 500),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # in spite of its name: how long one attempt to connect may take
    # A cable that was pulled says nothing. etcd closes connections that are pinged more often than every 5 s.
    ("grpc.keepalive_time_ms", 5_500),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Two stores in one process share no connection, so that closing one says nothing to the other.
    ("grpc.use_local_subchannel_pool", 1),
)


OTHER_THREADS = 5
"""For what begins while grpc starts its own: a guardian, an interpreter, a worker, and two threads of this process."""


_ENDING_SECONDS = 1.0
"""For threads that have nothing to do any more; none takes a thousandth of it."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM. Without `ca`, the authorities that grpc brings; `cert` and `key` where etcd asks for them."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """A certificate that is renewed in memory.

    Attributes:
        read: gives the authorities, the key and the certificate as they are now, in PEM.
        server_name: what members' certificates are made out to, whatever their address is.
    """

    read: "Callable[[], _Files]"
    server_name: str


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user of etcd's own."""

    user: str
    password: str = field(repr=False)


M = TypeVar("M", bound=Message)
Metadata = tuple[tuple[str, str], ...]


TOO_LATE = 0.02
"""Seconds before a deadline in which nothing is sent any more: it would only be in doubt."""

SEND_SECONDS = 2.0
"""Until a message on a stream is given up; it is small, and only the connection can hold it up."""

_LAST_WORD = 0.005
"""Seconds."""

Failure = Literal["unsent", "maybe", "token", "final"]
"""unsent: certainly not applied. maybe: nobody knows. token: log in again. final: an answer, and it is no."""


class AttemptFailed(Exception):
    """One attempt at one endpoint failed.

    Attributes:
        kind: what it means for the request.
        words: for a person: which endpoint said what.
        error: what to raise where it is the last word.
        cut: the caller's deadline came before the attempt's own time was over: the words tell no cause.
    """

    def __init__(self, kind: Failure, words: str, error: StoreError | None = None, *, cut: bool = False) -> None:
        super().__init__(words)
        self.kind: Failure = kind
        self.words = words
        self.error = error
        self.cut = cut


_UNSENT = (
    "failed to connect to all addresses",
    "dns resolution failed",
    "etcdserver: no leader",
    "etcdserver: unhealthy cluster",
    "etcdserver: too many requests",
    "etcdserver: rpc not supported for learner",
    "raft proposal dropped",
)
_TOKEN = ("invalid auth token", "revision of auth store is old", "user name is empty")
_SAYS: Sequence[tuple[str, str]] = (
    (
        "database space exceeded",
        "etcd has no space left: its database has reached its quota (--quota-backend-bytes) and refuses writes. "
        "Compact it (etcdctl compact REVISION), defragment every member (etcdctl defrag), then clear the alarm "
        "(etcdctl alarm disarm); --auto-compaction-retention keeps it from coming back",
    ),
    ("too many operations", "etcd allows fewer operations in one transaction than we send (its --max-txn-ops)"),
    ("request is too large", "etcd refuses a request of this size (its --max-request-bytes)"),
    ("larger than max", "etcd refuses a request of this size (its --max-request-bytes)"),
    ("permission denied", "etcd's user has no permission for these keys (etcdctl role grant-permission)"),
    ("authentication failed", "etcd refuses the user or the password"),
    ("user name is empty", "etcd requires a user and a password, and none were given"),
)
_IN_DOUBT = ("CANCELLED", "UNKNOWN", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL", "UNAVAILABLE")
"""Codes of grpc that say nothing of the request; all others are an answer."""


def judge(endpoint: str, code: str, details: str) -> AttemptFailed:
    """What a status means. `code` is grpc's name of it."""
    why = details.strip()
    low = why.lower()
    words = f"{endpoint}: {why or code.lower()}"
    if any(sign in low for sign in _UNSENT):
        return AttemptFailed("unsent", words)
    if any(sign in low for sign in _TOKEN):
        return AttemptFailed("token", words, refusal(endpoint, why))
    if code in _IN_DOUBT:
        return AttemptFailed("maybe", words)
    if "requested lease not found" in low:
        error: StoreError = LeaseLost(f"{endpoint}: the lease has expired or was revoked, and its keys are deleted")
    else:
        error = refusal(endpoint, why or code.lower())
    return AttemptFailed("final", words, error)


def refusal(endpoint: str, why: str) -> StoreRefused:
    """The store's no, with what to do about it where we know."""
    hint = next((hint for sign, hint in _SAYS if sign in why.lower()), None)
    return StoreRefused(f"{hint} ({endpoint}: {why})" if hint else f"{endpoint} refuses: {why}")


class Endpoint:
    """One member: its address and, once it is used, its connection."""

    def __init__(self, address: str, tls: "_Certificates | None", on_change: Callable[[], None]) -> None:
        self.address = address
        self.ready = False
        self.refused = ""  # why the last attempt to connect failed; empty while one is under way
        self._tls = tls
        self._files: _Files | None = None  # what the connection was made with
        self._on_change = on_change
        self._channel: Any = None  # Any: grpc's
        self._monitor: asyncio.Task[None] | None = None
        self._retired: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._streams: set[Stream[Any]] = set()  # Any: whatever they carry

    def open(self) -> None:
        """Begins to connect, and stays connected from now on."""
        if self._channel is None:
            self._connect()

    def _connect(self) -> None:
        target = f"dns:///{self.address.replace('%', '%25')}"
        if self._tls is None:
            self._channel = aio.insecure_channel(target, options=_OPTIONS)
        else:
            self._files = self._tls.files
            options = (*_OPTIONS, *self._tls.options)
            self._channel = aio.secure_channel(target, grpc.ssl_channel_credentials(*self._files), options=options)
        self._monitor = asyncio.create_task(self._follow(self._channel), name=f"etcd {self.address}")

    def _renew(self) -> None:
        """Connects with what is in the certificates' files now, where that is not what the connection was made with.

        grpc keeps the certificates that it was given, and these expire.
        """
        if self.ready or self._tls is None or self._channel is None or not self._tls.read_again(self._files):
            return
        retired = asyncio.create_task(_retire(self._channel, self._monitor), name=f"etcd {self.address}: retired")
        self._retired.add(retired)
        retired.add_done_callback(self._retired.discard)
        self.refused = ""
        self._connect()

    async def _follow(self, channel: Any) -> None:  # Any: grpc's
        while channel is self._channel:
            state = channel.get_state(try_to_connect=True)
            self.ready = state == grpc.ChannelConnectivity.READY
            failed = state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)
            self.refused = f"{self.address}: cannot connect" if failed else ""
            self._tell()
            if state == grpc.ChannelConnectivity.SHUTDOWN:
                return
            await channel.wait_for_state_change(state)

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._on_change()

    async def connected(self, seconds: float) -> None:
        """Waits until it is connected or refuses to be. Raises AttemptFailed after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                while not self.ready and not self.refused:
                    await self._changed.wait()
        except TimeoutError:
            words = f"{self.address}: no connection within {seconds:.1f} s"
            raise AttemptFailed("unsent", words) from None

    async def call(
        self, path: str, request: Message, answer: type[M], seconds: float, until: float, metadata: Metadata
    ) -> M:
        """One attempt at a unary call. Raises AttemptFailed.

        `seconds` are for the answer, and as many for a connection where there is none; all ends at the loop's time
        `until`.

        It is sent only over a connection that stands, so that what could not be sent is told from what was lost. Where
        the connection is refused, grpc fails the call at once and its words say why.
        """
        loop = asyncio.get_running_loop()
        left = until - loop.time()
        try:
            await self.connected(min(seconds, left))
        except AttemptFailed as failure:
            failure.cut = left < seconds
            raise
        left = min(seconds, until - loop.time())
        if left < TOO_LATE:
            raise AttemptFailed("unsent", f"{self.address}: connected too late", cut=True)
        try:
            method = self._standing().unary_unary(
                path, request_serializer=_serialize, response_deserializer=cast(Any, answer).FromString
            )
            return cast(M, await method(request, timeout=left, metadata=metadata))
        except (aio.AioRpcError, aio.UsageError, asyncio.CancelledError) as error:
            self._renew()
            raise _translated(self.address, error) from None

    def stream(self, path: str, answer: type[M], metadata: Metadata) -> "Stream[M]":
        """Begins a bidirectional call. End it with `Stream.end`."""
        try:
            method = self._standing().stream_stream(
                path, request_serializer=_serialize, response_deserializer=cast(Any, answer).FromString
            )
            stream = Stream[M](self.address, method(metadata=metadata), self._streams.discard)
        except aio.UsageError as error:
            raise _translated(self.address, error) from None
        self._streams.add(stream)
        return stream

    def _standing(self) -> Any:  # Any: grpc's
        if self._channel is None:
            raise aio.UsageError("closed")
        return self._channel

    def drop_streams(self) -> None:
        """Ends every stream, so that its owner opens it elsewhere."""
        for stream in tuple(self._streams):
            stream.end()

    async def close(self) -> None:
        """Closes the connection; calls under way fail."""
        channel, self._channel = self._channel, None
        monitor, self._monitor = self._monitor, None
        if channel is None or monitor is None:
            return
        await asyncio.gather(_retire(channel, monitor), *self._retired)
        self.ready, self.refused = False, f"{self.address}: closed"
        self._tell()
        del channel, monitor  # grpc disconnects when nobody holds the channel
        # Its last word to the monitor comes from another thread, and nothing tells when; a loop that is closed before
        # makes grpc fail in the process's next loop.
        await asyncio.sleep(_LAST_WORD)


def threads_of_grpc(processors: int) -> int:
    """How many threads grpc starts in a process that is a client (pure): a pool, and three beside it."""
    return min(max(processors, 4), 16) + 3


def _own_threads() -> int:
    """As the kernel counts them."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def check_threads(count: int) -> None:
    """This process can start so many threads or processes more.

    Where grpc can start none, it ends the whole process, by SIGSEGV or SIGABRT: so that is found out before it begins.

    Raises NoThreads.
    """
    gate, before = _thread.allocate_lock(), _own_threads()

    def wait() -> None:
        with gate:
            pass

    gate.acquire()
    started = 0
    try:
        for _ in range(count):
            _thread.start_new_thread(wait, ())
            started += 1
    except RuntimeError:  # Python has no error of its own for that
        raise NoThreads(
            f"{started} more threads can be started here, and asking the store takes {count}: raise the limit of "
            "processes (ulimit -u, or pids.max of the container), or that of memory where one is set (ulimit -v)"
        ) from None
    finally:
        gate.release()
        # Python does not say when a thread is gone from the kernel's count, and grpc is not to find that full.
        until = time.monotonic() + _ENDING_SECONDS
        while _own_threads() > before and time.monotonic() < until:
            os.sched_yield()


async def _retire(channel: Any, monitor: "asyncio.Task[None] | None") -> None:  # Any: grpc's
    await channel.close()
    if monitor is not None:
        monitor.cancel()
        await asyncio.wait([monitor])


class Stream(Generic[M]):
    """A bidirectional call."""

    def __init__(self, address: str, call: Any, on_end: "Callable[[Stream[Any]], None]") -> None:  # Any: grpc's
        self._address = address
        self._call = call
        self._on_end = on_end

    async def send(self, request: Message) -> None:
        """Raises AttemptFailed, also after SEND_SECONDS: in a call that was ended before it began grpc never wakes."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._call.write(request)
        except TimeoutError:
            words = f"{self._address}: a request could not be sent within {SEND_SECONDS:g} s"
            raise AttemptFailed("unsent", words) from None
        except (aio.AioRpcError, aio.UsageError, asyncio.CancelledError, asyncio.InvalidStateError) as error:
            raise _translated(self._address, error) from None

    async def receive(self, seconds: float | None = None) -> M:
        """The next message. Raises AttemptFailed where the stream ends, or after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                message = await self._call.read()
                if message is not aio.EOF:
                    return cast(M, message)
                code, details = await self._call.code(), await self._call.details()
        except TimeoutError:
            raise AttemptFailed("maybe", f"{self._address}: no answer within {seconds:.1f} s") from None
        except (aio.AioRpcError, aio.UsageError, asyncio.CancelledError) as error:
            raise _translated(self._address, error) from None
        raise judge(self._address, code.name, details or "it ended the stream")

    def end(self) -> None:
        """Ends it; may be called again."""
        self._on_end(self)
        self._call.cancel()


def _translated(address: str, error: BaseException) -> BaseException:
    """What to raise for what grpc raised."""
    if isinstance(error, aio.AioRpcError):
        rpc = cast(Any, error)  # Any: grpc's
        return judge(address, rpc.code().name, rpc.details() or "")
    if isinstance(error, asyncio.CancelledError):
        # grpc raises the same where our task was told to end and where the call ended under it.
        task = asyncio.current_task()
        if task is not None and task.cancelling() > 0:
            return error
        return AttemptFailed("maybe", f"{address}: the connection was closed")
    return AttemptFailed("unsent", f"{address}: the connection was closed")


def _serialize(request: Message) -> bytes:
    return request.SerializeToString()


class Endpoints:
    """The members, and whose turn it is. The one that last answered keeps it; a failure passes it on."""

    def __init__(self, addresses: Sequence[str], tls: Tls | Proof | None) -> None:
        if not addresses:
            raise ValueError("no endpoint of etcd was given")
        for address in addresses:
            if not re.fullmatch(r"(\[[^\[\]]+\]|[^:\[\]/]+):\d+", address):
                raise ValueError(f"{address!r} is no endpoint of etcd: give host:port, or [address]:port for IPv6")
        certificates = None if tls is None else _Certificates(tls)
        self._has_threads = False
        self._changed = asyncio.Event()
        self.all = tuple(Endpoint(address, certificates, self._notify) for address in addresses)
        # Any member serves; not all nodes should begin with the same one.
        self._turn = random.randrange(len(self.all))

    @property
    def current(self) -> Endpoint:
        """Whose turn it is, connecting or connected. Raises NoThreads, before anything is connected."""
        if not self._has_threads:
            check_threads(threads_of_grpc(os.cpu_count() or 1) + OTHER_THREADS)
            self._has_threads = True
        endpoint = self.all[self._turn]
        endpoint.open()
        return endpoint

    def pass_on(self, endpoint: Endpoint) -> None:
        """`endpoint` failed: the next one's turn, unless it was passed on already. Those that refuse come last."""
        if self.all[self._turn] is endpoint:
            turns = [(self._turn + step) % len(self.all) for step in range(1, len(self.all) + 1)]
            self._turn = next((turn for turn in turns if not self.all[turn].refused), turns[0])

    async def change(self, seconds: float) -> None:
        """Waits until some connection changes, at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def close(self) -> None:
        await asyncio.gather(*(endpoint.close() for endpoint in self.all))
        self._notify()


_Files = tuple[bytes | None, bytes | None, bytes | None]
"""The authorities, the key and the certificate, as grpc takes them."""


class _Certificates:
    """What is in the files of `Tls`, and is read again when a connection fails: certificates are replaced in time.

    `files`: as last read; `options`: for a channel that uses them.

    Raises ValueError where a file cannot be read at the start, or one of a pair is missing.
    """

    def __init__(self, tls: Tls | Proof) -> None:
        self._proof = tls if isinstance(tls, Proof) else None
        self.options: Sequence[tuple[str, int | str]] = ()
        if isinstance(tls, Proof):
            self.options = (("grpc.ssl_target_name_override", tls.server_name),)
            self.files = tls.read()
            return
        if (tls.cert is None) != (tls.key is None):
            raise ValueError("a client certificate needs its key, and a key its certificate")
        self._paths = tls.ca, tls.key, tls.cert
        try:
            self.files = self._read()
        except OSError as error:
            raise ValueError(f"cannot read the TLS file {error.filename}: {error.strerror}") from None

    def read_again(self, known: _Files | None) -> bool:
        """Whether they are others than those known. Where a file is just being replaced, those read before stay."""
        with contextlib.suppress(OSError):
            self.files = self._read()
        return self.files != known

    def _read(self) -> _Files:
        if self._proof is not None:
            return self._proof.read()
        ca, key, cert = (None if path is None else read_named(Path(path), LARGEST_SETTINGS) for path in self._paths)
        return ca, key, cert
