"""Asking an etcd cluster: attempts, whose turn is next, log-in, and whether anybody answers at all.

An attempt is short and the whole is bounded: during an election a member holds a request for seconds that another
would answer at once. What may be repeated is re-issued, at the next endpoint; what may not is reported.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from ...base.errors import MaybeApplied, StoreRefused, StoreUnavailable
from ..contract import Health
from ..revision_times import RevisionTimes
from .connections import TOO_LATE, AttemptFailed, Credentials, Endpoint, Endpoints, M, Message, Metadata
from .proto import elastic_run_etcd_pb2 as pb

SHORTEST_ATTEMPT = 0.5
LONGEST_ATTEMPT = 2.0
"""Seconds that one attempt may take."""

LONGEST_WRITE = 8.0
"""Seconds that one attempt at a write may take where no endpoint has answered a shorter one."""

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5
"""Seconds between two rounds of attempts, where every endpoint failed at once; a new connection ends it early."""

_LOG_INS = 2
"""Log-ins in a row before etcd's refusal is taken as its last word."""

_AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"

_TLS_SAYS: Sequence[tuple[str, str]] = (
    ("peer name", "write the endpoint as etcd's certificate names it"),
    ("mismatch", "write the endpoint as etcd's certificate names it"),
    ("certificate_verify_failed", "name the authority that has signed etcd's certificate with --etcd-cacert"),
    # What etcd says, after the handshake with TLS 1.3, of a client's certificate.
    ("unwrap failed", "etcd asks for a certificate of its authority's: give it with --etcd-cert and --etcd-key"),
    ("handshake failed", "check --etcd-cacert, --etcd-cert and --etcd-key"),
)


class Patience:
    """How long an attempt may take: it learns, so that a slow disk does not make every write time out for ever.

    One endpoint that does not answer is no reason to wait longer at the next. Only where all of them have failed in
    turn may the store itself be slow: then an attempt may take `longest` seconds, until one is answered. Answers to
    other questions shorten nothing: a disk that needs seconds for a write needs none for a read.
    """

    def __init__(self, longest: float = LONGEST_ATTEMPT) -> None:
        self.seconds = SHORTEST_ATTEMPT
        self._longest = longest
        self._silent: set[str] = set()

    def answered(self, took: float) -> None:
        """An attempt was answered after `took` seconds."""
        most = self._longest if took > LONGEST_ATTEMPT else LONGEST_ATTEMPT
        self.seconds = min(max(3 * took, SHORTEST_ATTEMPT), most)
        self._silent.clear()

    def in_vain(self, endpoint: str, endpoints: int) -> None:
        """An attempt at `endpoint`, which is one of so many, got no answer."""
        self._silent.add(endpoint)
        all_failed = len(self._silent) == endpoints
        if all_failed:
            self._silent.clear()
        if self.seconds < LONGEST_ATTEMPT:
            self.seconds = min(2 * self.seconds, LONGEST_ATTEMPT)
        elif all_failed:
            self.seconds = min(2 * self.seconds, self._longest)


class Session:
    """The conversation of one store with its cluster. Built outside of a loop, used inside of one.

    Args:
        endpoints: the wire.
        deadline: seconds that one call may take.
        now: the loop's clock, which can be asked where no loop runs yet.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        credentials: Credentials | None,
        deadline: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoints = endpoints
        self.closed = asyncio.Event()
        self.now = now
        self.health = Health(False, now(), "not asked yet")
        self.revision = 0  # the newest that an answer proved
        self.times = RevisionTimes()
        self.last_answer = ""  # by which endpoint
        self._credentials = credentials
        self._deadline = deadline
        self._reads, self._writes = Patience(), Patience(LONGEST_WRITE)
        self._token: str | None = None
        self._logging_in = asyncio.Lock()
        self._cluster: tuple[int, str] | None = None
        self._failing: dict[str, str] = {}
        self._health_changed = asyncio.Event()

    # Asking

    async def ask(
        self,
        path: str,
        request: Message,
        answer: type[M],
        *,
        repeatable: bool = True,
        write: bool = False,
        linearizable: bool = False,
        leader: bool = True,
        until: float | None = None,
    ) -> M:
        """The cluster's answer, from whichever endpoint gives one first.

        Args:
            path: gRPC's name of the method.
            repeatable: an attempt that may have been applied is re-issued; else it raises MaybeApplied at once.
            write: it is certain only when answered: raises MaybeApplied at the deadline where an attempt was lost.
            linearizable: its revision can never be older than what was known before it was asked.
            leader: only a member that has a leader may answer.
            until: the deadline on the loop's clock, for a call that asks more than once.

        Raises:
            MaybeApplied, StoreUnavailable, StoreRefused, LeaseLost: as `Store.txn` tells.
        """
        loop = asyncio.get_running_loop()
        end = self.deadline() if until is None else until
        patience = self._writes if write else self._reads
        pause, failures, logins, in_doubt = _FIRST_PAUSE, 0, 0, False
        while True:
            self.check_open()
            metadata = await self.metadata(end, leader=leader)
            endpoint = self.endpoints.current
            known, began = self.revision, loop.time()
            if metadata is None or end - began < TOO_LATE:
                raise self._out_of_time(in_doubt)
            try:
                response = await endpoint.call(path, request, answer, patience.seconds, end, metadata)
            except AttemptFailed as failure:
                if failure.kind == "final" and failure.error is not None:
                    self.answered(endpoint)
                    raise failure.error from None
                if failure.kind == "token":
                    logins += 1
                    self.answered(endpoint)
                    self.log_in_again(failure, logins)
                    continue
                self.failed(endpoint, failure)
                if failure.kind == "maybe":
                    patience.in_vain(endpoint.address, len(self.endpoints.all))
                    in_doubt = in_doubt or write
                    if not repeatable:
                        raise MaybeApplied(
                            f"etcd did not answer a write; it may have been applied ({failure.words})"
                        ) from None
                failures += 1
                if failures % len(self.endpoints.all) == 0:
                    await self.endpoints.change(min(pause, max(0.0, end - loop.time())))
                    pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            patience.answered(loop.time() - began)
            header = cast(Any, response).header  # Any: every answer has one, and their types share no name for it
            self.check_cluster(endpoint, header)
            self.times.saw(header.revision, self.now())
            if linearizable:
                self._check_revision(endpoint, header, known)
            self.answered(endpoint)
            return response

    def _out_of_time(self, in_doubt: bool) -> StoreUnavailable | StoreRefused:
        said = "; ".join(self._failing.values()) or "no answer"
        if self._failing and all(_tls_advice(words) for words in self._failing.values()):
            return StoreRefused(
                f"etcd and this node do not accept each other's TLS certificates ({said}): {_tls_advice(said)}"
            )
        if in_doubt:
            return MaybeApplied(
                f"etcd did not answer a write within {self._deadline:g} s; it may have been applied ({said})"
            )
        return StoreUnavailable(f"no endpoint of etcd answered within {self._deadline:g} s ({said})")

    def deadline(self) -> float:
        """Of a call that begins now, on the loop's clock."""
        return asyncio.get_running_loop().time() + self._deadline

    def check_cluster(self, endpoint: Endpoint, header: pb.Header) -> None:
        """Raises StoreRefused where the endpoints are not members of one cluster."""
        if self._cluster is None:
            self._cluster = (header.cluster_id, endpoint.address)
        cluster, first = self._cluster
        if header.cluster_id != cluster:
            raise StoreRefused(
                f"{endpoint.address} now belongs to another etcd cluster than {first} did: the endpoints are not "
                "members of one cluster, or the cluster was recreated and its data is lost"
            )

    def _check_revision(self, endpoint: Endpoint, header: pb.Header, known: int) -> None:
        if header.revision < known:
            raise StoreRefused(
                f"etcd lost data: {endpoint.address} is at revision {header.revision}, and {known} was seen before. "
                "This run of the job cannot continue; the same command starts another, from the last checkpoint"
            )
        self.saw(header.revision)

    def saw(self, revision: int) -> None:
        """`revision` is written: no later linearizable answer is older."""
        self.times.saw(revision, self.now())
        self.revision = max(self.revision, revision)

    # Logging in

    async def metadata(self, until: float, *, leader: bool = True) -> Metadata | None:
        """What goes with every request; logs in first where that is due. None: that did not succeed before `until`.

        Whose turn it is, the caller asks after this: it may be another endpoint's by now. Raises StoreRefused where
        etcd refuses the user.
        """
        headers: Metadata = (("hasleader", "true"),) if leader else ()
        if self._credentials is None:
            return headers
        try:
            async with asyncio.timeout_at(until):
                async with self._logging_in:
                    if self._token is None:
                        self._token = await self._log_in(self._credentials, until, headers)
        except TimeoutError:
            return None
        return (*headers, ("token", self._token)) if self._token else headers

    async def _log_in(self, credentials: Credentials, until: float, headers: Metadata) -> str | None:
        """The token, from whichever endpoint gives one first; empty where etcd asks for none.

        One request logs in for all that wait: each of them would ask an endpoint that does not answer once more.
        """
        request = pb.AuthenticateRequest(name=credentials.user, password=credentials.password)
        pause, failures = _FIRST_PAUSE, 0
        while True:
            self.check_open()
            endpoint = self.endpoints.current
            try:
                response = await endpoint.call(
                    _AUTHENTICATE, request, pb.AuthenticateResponse, LONGEST_ATTEMPT, until, headers
                )
                return response.token
            except AttemptFailed as failure:
                if "authentication is not enabled" in failure.words:
                    return ""
                if failure.kind == "final" and failure.error is not None:
                    self.answered(endpoint)
                    raise failure.error from None
                self.failed(endpoint, failure)
            failures += 1
            if failures % len(self.endpoints.all) == 0:
                await self.endpoints.change(min(pause, max(0.0, until - asyncio.get_running_loop().time())))
                pause = min(2 * pause, _LONGEST_PAUSE)
            if until - asyncio.get_running_loop().time() < TOO_LATE:
                return None

    def log_in_again(self, failure: AttemptFailed, times: int) -> None:
        """The token was not taken: the next request brings a new one. Raises what etcd said after `times` in vain."""
        if failure.error is not None and (self._credentials is None or times > _LOG_INS):
            raise failure.error from None
        self._token = None

    # Health

    def check_open(self) -> None:
        """Raises StoreUnavailable after `close`."""
        if self.closed.is_set():
            raise StoreUnavailable("the store was closed")

    def answered(self, endpoint: Endpoint) -> None:
        self.last_answer = endpoint.address
        self._failing.clear()
        self._set_health(True, f"{endpoint.address} answers")

    def failed(self, endpoint: Endpoint, failure: AttemptFailed) -> None:
        """`endpoint` did: the next one's turn.

        Nobody is reachable once all have failed since the last answer, or cannot be connected to: those get no turn
        while another might answer.
        """
        if not failure.cut or endpoint.address not in self._failing:  # else the attempt before has told why
            self._failing[endpoint.address] = failure.words
        self.endpoints.pass_on(endpoint)
        if failure.kind == "maybe" and len(self.endpoints.all) > 1:
            endpoint.drop_streams()  # a frozen member serves watches in silence
        failing = self._failing | {
            each.address: each.refused
            for each in self.endpoints.all
            if each.refused and each.address not in self._failing
        }
        if len(failing) == len(self.endpoints.all):
            self._set_health(False, "; ".join(failing.values()))

    def _set_health(self, reachable: bool, detail: str) -> None:
        if reachable == self.health.reachable:
            return
        self.health = Health(reachable, self.now(), detail)
        changed, self._health_changed = self._health_changed, asyncio.Event()
        changed.set()

    async def health_changed(self) -> Health:
        await self._health_changed.wait()
        return self.health

    async def close(self) -> None:
        """Closes every connection; what is under way fails."""
        self.closed.set()
        await self.endpoints.close()
        self._set_health(False, "the store was closed")


def _tls_advice(words: str) -> str:
    """What to do where the two sides do not agree on certificates, so that waiting is useless; else empty."""
    return next((advice for sign, advice in _TLS_SAYS if sign in words.lower()), "")
