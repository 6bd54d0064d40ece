"""How requests to etcd log in: one for all, wherever an endpoint answers. The clock jumps."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from elastic_run.rendezvous.base.errors import StoreRefused, StoreUnavailable
from elastic_run.rendezvous.store.etcd.connections import AttemptFailed, Credentials, judge
from elastic_run.rendezvous.store.etcd.proto import elastic_run_etcd_pb2 as pb
from elastic_run.rendezvous.store.etcd.session import Session

from .....doubles.virtual_loop import VirtualLoop

RANGE = "/etcdserverpb.KV/Range"
DEADLINE = 10.0


class Member:
    """An endpoint that is connected. `frozen`: it answers nothing. `password`: the only one that it takes."""

    def __init__(self, address: str, *, frozen: bool = False, password: str = "secret") -> None:
        self.address = address
        self.frozen = frozen
        self.password = password
        self.refused = ""  # why nothing connects to it
        self.asked: list[str] = []

    async def connected(self, seconds: float) -> None:
        return

    async def call(
        self, path: str, request: Any, answer: type[Any], seconds: float, until: float, metadata: Sequence[Any]
    ) -> Any:
        self.asked.append(path)
        if self.frozen:
            await asyncio.sleep(min(seconds, until - asyncio.get_running_loop().time()))
            raise AttemptFailed("maybe", f"{self.address}: Deadline Exceeded")
        await asyncio.sleep(0.01)
        if path != RANGE:
            if request.password != self.password:
                raise judge(self.address, "INVALID_ARGUMENT", "etcdserver: authentication failed")
            return pb.AuthenticateResponse(token="token")
        assert ("token", "token") in metadata
        return pb.RangeResponse(header=pb.Header(cluster_id=1, revision=7))

    def stream(self, path: str, answer: type[Any], metadata: Sequence[Any]) -> Any:
        raise AssertionError("nobody watches here")

    def drop_streams(self) -> None:
        return


class Slow(Member):
    """An endpoint that takes 0.4 s to refuse this node's certificate."""

    async def call(
        self, path: str, request: Any, answer: type[Any], seconds: float, until: float, metadata: Sequence[Any]
    ) -> Any:
        left = until - asyncio.get_running_loop().time()
        await asyncio.sleep(min(left, 0.4))
        if left < 0.4:
            raise AttemptFailed("unsent", f"{self.address}: no connection within {left:.1f} s", cut=True)
        raise AttemptFailed("unsent", f"{self.address}: SSL handshake failed")


class Members:
    """A wire."""

    def __init__(self, *members: Member) -> None:
        self.all = members
        self._turn = 0

    @property
    def current(self) -> Member:
        return self.all[self._turn]

    def pass_on(self, endpoint: Any) -> None:
        if endpoint is self.current:
            turns = [(self._turn + step) % len(self.all) for step in range(1, len(self.all) + 1)]
            self._turn = next((turn for turn in turns if not self.all[turn].refused), turns[0])

    async def change(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        return


def live(members: Members, body: Callable[[Session], Coroutine[Any, Any, None]], password: str = "secret") -> None:
    async def run() -> None:
        clock = asyncio.get_running_loop().time
        await body(Session(members, Credentials("root", password), DEADLINE, clock))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


async def ask(session: Session) -> pb.RangeResponse:
    return await session.ask(RANGE, pb.RangeRequest(key=b"a"), pb.RangeResponse, linearizable=True)


def test_calls_that_wait_for_a_log_in_go_where_it_succeeded() -> None:
    frozen, healthy = Member("m1:1", frozen=True), Member("m2:1")

    async def body(session: Session) -> None:
        answers = await asyncio.gather(*(ask(session) for _ in range(6)))
        assert [answer.header.revision for answer in answers] == [7] * 6

    live(Members(frozen, healthy), body)
    assert len(frozen.asked) == 1
    assert len(healthy.asked) == 1 + 6


def test_where_nobody_answers_all_that_wait_are_told_at_their_deadline() -> None:
    async def body(session: Session) -> None:
        began = asyncio.get_running_loop().time()
        told = await asyncio.gather(*(ask(session) for _ in range(6)), return_exceptions=True)
        assert all(isinstance(each, StoreUnavailable) and "m1:1" in str(each) for each in told)
        assert asyncio.get_running_loop().time() - began <= DEADLINE

    live(Members(Member("m1:1", frozen=True), Member("m2:1", frozen=True)), body)


@pytest.mark.parametrize("seconds", [2.0, 2.3, 10.0, 10.1])
def test_an_attempt_that_the_deadline_cuts_short_does_not_hide_why_those_before_it_failed(seconds: float) -> None:
    async def body(session: Session) -> None:
        until = asyncio.get_running_loop().time() + seconds
        with pytest.raises(StoreRefused, match=r"TLS certificates.*SSL handshake failed"):
            await session.ask(RANGE, pb.RangeRequest(key=b"a"), pb.RangeResponse, leader=False, until=until)

    async def run() -> None:
        await body(Session(Members(Slow("m1:1")), None, DEADLINE, asyncio.get_running_loop().time))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


def test_a_store_of_which_one_member_never_connects_and_the_others_do_not_answer_is_not_reachable() -> None:
    """Who cannot be connected to gets no turn, so it never fails again."""
    members = Members(Member("m1:1", frozen=True), Member("m2:1", frozen=True), Member("m3:1"))
    members.all[2].refused = "m3:1: cannot connect"

    async def body(session: Session) -> None:
        session.answered(members.all[0])  # type: ignore[arg-type]
        with pytest.raises(StoreUnavailable):
            await ask(session)
        assert not session.health.reachable and "m3:1: cannot connect" in session.health.detail

    live(members, body)
    assert members.all[2].asked == []


def test_a_wrong_password_is_refused_at_once() -> None:
    async def body(session: Session) -> None:
        with pytest.raises(StoreRefused, match="password"):
            await ask(session)

    members = Members(Member("m1:1"), Member("m2:1"))
    live(members, body, "wrong")
    assert [len(member.asked) for member in members.all] == [1, 0]
