"""What etcd's and grpc's words mean for a request, and how long an attempt may take."""

import math

import pytest

from elastic_run.rendezvous.base.errors import LeaseLost, StoreRefused
from elastic_run.rendezvous.store.etcd.connections import judge
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore, Renewals
from elastic_run.rendezvous.store.etcd.session import LONGEST_ATTEMPT, LONGEST_WRITE, SHORTEST_ATTEMPT, Patience


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses; last error: Connection refused"),
        ("UNAVAILABLE", "DNS resolution failed for nowhere:2379"),
        ("UNAVAILABLE", "etcdserver: no leader"),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests"),
        ("UNKNOWN", "raft proposal dropped"),
    ],
)
def test_what_was_not_taken_up_was_not_applied(code: str, words: str) -> None:
    assert judge("e:1", code, words).kind == "unsent"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("DEADLINE_EXCEEDED", "Deadline Exceeded"),
        ("UNAVAILABLE", "Socket closed"),
        ("UNAVAILABLE", "etcdserver: request timed out, possibly due to previous leader failure"),
        ("UNAVAILABLE", "etcdserver: server stopped"),
        ("INTERNAL", "Received RST_STREAM with error code 2"),
        ("CANCELLED", ""),
        ("UNKNOWN", "something new"),
    ],
)
def test_whatever_broke_off_may_have_been_applied(code: str, words: str) -> None:
    assert judge("e:1", code, words).kind == "maybe"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("UNAUTHENTICATED", "etcdserver: invalid auth token"),
        ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old"),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty"),
    ],
)
def test_a_token_that_is_not_taken_asks_for_a_new_one(code: str, words: str) -> None:
    failure = judge("e:1", code, words)

    assert failure.kind == "token"
    assert isinstance(failure.error, StoreRefused)


def test_a_lease_that_is_not_found_is_lost() -> None:
    failure = judge("e:1", "NOT_FOUND", "etcdserver: requested lease not found")

    assert failure.kind == "final"
    assert isinstance(failure.error, LeaseLost)


@pytest.mark.parametrize(
    ("code", "words", "advice"),
    [
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", "etcdctl defrag"),
        ("PERMISSION_DENIED", "etcdserver: permission denied", "grant-permission"),
        ("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user ID or password", "password"),
        ("INVALID_ARGUMENT", "etcdserver: too many operations in txn request", "max-txn-ops"),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", "max-request-bytes"),
        ("RESOURCE_EXHAUSTED", "grpc: received message larger than max (2 vs. 1)", "max-request-bytes"),
        ("UNIMPLEMENTED", "unknown service etcdserverpb.KV", "unknown service"),
    ],
)
def test_a_refusal_says_what_to_do_and_who_said_it(code: str, words: str, advice: str) -> None:
    failure = judge("e:1", code, words)

    assert failure.kind == "final"
    assert isinstance(failure.error, StoreRefused)
    assert advice in str(failure.error)
    assert "e:1" in str(failure.error)


def test_patience_begins_short_and_doubles_up_to_its_limit() -> None:
    patience = Patience()
    lengths: list[float] = []
    for _ in range(4):
        lengths.append(patience.seconds)
        patience.in_vain("m1", 1)

    assert lengths == [SHORTEST_ATTEMPT, 1.0, LONGEST_ATTEMPT, LONGEST_ATTEMPT]


def test_patience_with_a_write_grows_further_only_when_all_endpoints_have_failed_in_turn() -> None:
    patience = Patience(LONGEST_WRITE)
    for _ in range(20):
        patience.in_vain("m1", 3)
        patience.in_vain("m2", 3)
    assert patience.seconds == LONGEST_ATTEMPT
    patience.in_vain("m3", 3)
    assert patience.seconds == 4.0

    patience.answered(0.001)
    assert patience.seconds == SHORTEST_ATTEMPT
    for _ in range(2):  # who failed before the answer does not count
        patience.in_vain("m1", 3)
        patience.in_vain("m2", 3)
    assert patience.seconds == LONGEST_ATTEMPT

    lengths: list[float] = []
    for endpoint in ("m3", "m1", "m2", "m3", "m1", "m2", "m3"):
        patience.in_vain(endpoint, 3)
        lengths.append(patience.seconds)
    assert lengths == [4.0, 4.0, 4.0, LONGEST_WRITE, LONGEST_WRITE, LONGEST_WRITE, LONGEST_WRITE]


def test_patience_with_a_write_stays_long_only_while_answers_take_long() -> None:
    patience = Patience(LONGEST_WRITE)

    patience.answered(1.9)  # an endpoint that answers no other write would cost as long
    assert patience.seconds == LONGEST_ATTEMPT
    patience.answered(2.5)
    assert patience.seconds == pytest.approx(7.5)
    patience.answered(6.0)
    assert patience.seconds == LONGEST_WRITE
    patience.answered(0.01)
    assert patience.seconds == SHORTEST_ATTEMPT


def test_patience_follows_how_long_answers_take() -> None:
    patience = Patience()

    patience.answered(0.4)
    assert patience.seconds == pytest.approx(1.2)
    patience.answered(60)
    assert patience.seconds == LONGEST_ATTEMPT
    patience.answered(0.001)
    assert patience.seconds == SHORTEST_ATTEMPT


@pytest.mark.parametrize("endpoint", ["", "host", "host:", "host:port", "::1:2379", "http://host:2379", "[::1]"])
def test_what_is_no_endpoint_is_refused_at_once(endpoint: str) -> None:
    with pytest.raises(ValueError, match="is no endpoint of etcd"):
        EtcdStore([endpoint])


@pytest.mark.parametrize("endpoint", ["host:2379", "10.0.0.1:2379", "[::1]:2379", "[fe80::1%eth0]:2379"])
def test_what_is_an_endpoint_is_taken(endpoint: str) -> None:
    EtcdStore([endpoint])


def test_no_endpoint_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="no endpoint"):
        EtcdStore([])


class TestTheRenewalsOfALease:
    """They tell whether the store was away for so long that somebody's lease may have ended of it."""

    def test_that_are_answered_in_time_tell_nothing(self) -> None:
        renewals = Renewals()
        assert renewals.away_until(100.0) == -math.inf
        renewals.begin(6, 100.0)
        for at in (102.0, 104.0, 106.5):
            renewals.answered(at)
        assert renewals.away_until(108.0) == -math.inf

    def test_that_stay_without_an_answer_for_half_a_lease_tell_that_it_is_away(self) -> None:
        renewals = Renewals()
        renewals.begin(6, 100.0)
        assert renewals.away_until(103.0) == -math.inf
        assert renewals.away_until(103.1) == 103.1
        assert renewals.away_until(115.0) == 115.0

    def test_that_are_answered_again_tell_until_when_it_was_away(self) -> None:
        renewals = Renewals()
        renewals.begin(6, 100.0)
        renewals.answered(115.0)
        renewals.answered(117.0)
        assert renewals.away_until(118.0) == 115.0

    def test_of_the_next_lease_remember_the_one_before(self) -> None:
        renewals = Renewals()
        renewals.begin(6, 100.0)
        renewals.begin(6, 115.0)
        assert renewals.away_until(116.0) == 115.0
