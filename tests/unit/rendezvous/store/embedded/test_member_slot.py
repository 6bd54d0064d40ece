"""Which member slot of the embedded store an agent takes, decided on values alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_run.rendezvous.store.embedded.member_slot import (
    Data,
    Member,
    Probe,
    Reach,
    View,
    cluster_token,
    decide,
    joining_cluster,
    member_name,
    missing_members,
    peer_port,
    peer_url,
    port_clash,
    static_cluster,
)
from elastic_run.rendezvous.store.endpoint import Endpoint

A, B, C = (Endpoint(name) for name in "abc")
ONE = frozenset({A})
TRIO = (A, B, C)


def seen(**reach: Reach) -> tuple[Probe, ...]:
    """Probes of a, b, c; those that answer belong to the store `now`, which was started with these three."""
    listed = frozenset(str(Endpoint(name)) for name in "abc")
    return tuple(
        Probe(Endpoint(name), what, "now", listed=listed) if what is Reach.ANSWERS else Probe(Endpoint(name), what)
        for name, what in reach.items()
    )


UP, DEAD, MUTE = Reach.ANSWERS, Reach.REFUSED, Reach.SILENT
BESIDE_QUORUM = seen(a=DEAD, b=UP, c=UP)
MEMBERS = tuple(Member(number, member_name(e), (peer_url(e),)) for number, e in enumerate(TRIO, 1))


def test_a_store_that_answers_is_used() -> None:
    assert decide(View(seen(a=UP), local=ONE)).action == "use"
    assert decide(View(BESIDE_QUORUM)).action == "use"


def test_a_vacant_endpoint_of_this_machine_is_started() -> None:
    decision = decide(View(seen(a=DEAD), local=ONE))
    assert (decision.action, decision.endpoint) == ("start", A)


def test_the_first_local_member_slot_that_no_other_agent_holds_is_started() -> None:
    view = View(seen(a=DEAD, b=DEAD, c=DEAD), local=frozenset(TRIO), busy=ONE)
    assert decide(view).endpoint == B


def test_a_member_slot_with_data_comes_before_one_without() -> None:
    view = View(seen(a=DEAD, b=DEAD, c=DEAD), local=frozenset(TRIO), data=(Data(C),))
    decision = decide(view)
    assert (decision.action, decision.endpoint) == ("restart", C)


def test_one_agent_takes_one_member_slot() -> None:
    view = View(seen(a=MUTE, b=DEAD, c=DEAD), local=frozenset(TRIO), hosted=A)
    decision = decide(view)
    assert decision.action == "wait"
    assert "1 more member is needed for a majority of 3" in decision.reason


@pytest.mark.parametrize("reach", [DEAD, Reach.UNREACHABLE, Reach.UNRESOLVABLE, MUTE])
def test_another_machine_is_awaited_and_named(reach: Reach) -> None:
    decision = decide(View(seen(a=reach)))
    assert decision.action == "wait"
    assert f"a:2379 {reach}" in decision.reason


@pytest.mark.parametrize("reach", [MUTE, Reach.FOREIGN])
def test_a_local_port_that_is_bound_is_not_started(reach: Reach) -> None:
    assert decide(View(seen(a=reach), local=ONE)).action == "wait"


def test_a_store_of_another_secret_is_refused_at_once() -> None:
    ours = Endpoint("a", secret="0f")
    found = decide(View((Probe(ours, Reach.STRANGER, detail="its secret is another"),), local=frozenset({ours})))
    assert found.action == "refuse" and "a:2379 cannot be used: its secret is another" in found.reason


def test_stores_of_different_secrets_share_neither_data_nor_peers() -> None:
    plain, one, other = Endpoint("a"), Endpoint("a", secret="01"), Endpoint("a", secret="02")
    assert len({cluster_token([each]) for each in (plain, one, other)}) == 3
    assert peer_url(plain) == "http://a:12379" and peer_url(one) == "https://a:12379"


def test_a_store_that_was_named_with_http_is_never_started() -> None:
    own = Endpoint("a", plain=True)
    assert decide(View((Probe(own, Reach.REFUSED),), local=frozenset({own}))).action == "wait"


def test_a_store_behind_tls_is_never_started() -> None:
    secure = Endpoint("a", tls=True)
    assert decide(View((Probe(secure, DEAD),), local=frozenset({secure}))).action == "wait"


def test_an_even_number_is_used_and_not_started() -> None:
    assert decide(View(seen(a=DEAD, b=UP))).action == "use"
    assert decide(View(seen(a=DEAD, b=DEAD), local=ONE)).action == "refuse"


def test_an_even_number_on_other_machines_is_refused_once_nobody_can_be_expected_to_answer() -> None:
    nobody = seen(a=DEAD, b=Reach.UNREACHABLE)
    assert decide(View(nobody)).action == "wait"
    decision = decide(View(nobody, patient=True))
    assert decision.action == "refuse" and "an odd number of endpoints" in decision.reason
    for somebody in (seen(a=DEAD, b=MUTE), seen(a=DEAD, b=DEAD, c=DEAD)):
        assert decide(View(somebody, patient=True)).action == "wait"
    secure = tuple(Probe(Endpoint(host, tls=True), DEAD) for host in "ab")
    assert decide(View(secure, patient=True)).action == "wait"


def test_a_dead_members_member_slot_is_replaced_beside_a_healthy_quorum() -> None:
    assert decide(View(BESIDE_QUORUM, local=ONE, members=MEMBERS)).action == "replace"


def test_a_member_slot_that_was_removed_and_never_added_is_replaced() -> None:
    assert decide(View(BESIDE_QUORUM, local=ONE, members=MEMBERS[1:])).action == "replace"


LONE = (Probe(A, UP, "now", listed=frozenset({str(A)})), Probe(B, DEAD), Probe(C, DEAD))
"""A store of one, at an endpoint that somebody else's command names together with two more."""


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(
            View(LONE, local=frozenset({B}), members=MEMBERS[:1]), id="on a machine with a vacant member slot"
        ),
        pytest.param(View(LONE, local=frozenset({B}), members=MEMBERS[:1], patient=True), id="also after a while"),
        pytest.param(View(LONE), id="on a machine without a member slot"),
        pytest.param(View(LONE, local=frozenset({B}), data=(Data(B, "then", 3),)), id="also where data lies"),
        pytest.param(View(LONE, local=frozenset({B}), hosted=B), id="when it has started a member meanwhile"),
    ],
)
def test_a_store_that_was_started_for_fewer_endpoints_is_refused(view: View) -> None:
    decision = decide(view)
    assert decision.action == "refuse"
    assert "was started with --rdzv-endpoint=a:2379, and this command names a:2379,b:2379,c:2379" in decision.reason


def test_a_store_of_other_endpoints_gets_no_member() -> None:
    D = Endpoint("d")
    view = View((*seen(b=UP, c=UP), Probe(D, DEAD)), local=frozenset({D}), members=MEMBERS)
    assert decide(view).action == "refuse"


def test_a_member_that_was_started_again_for_another_command_may_be_spelled_in_another_way() -> None:
    answers = (Probe(A, UP, "now", listed=frozenset({"127.0.0.1:2379"})),)
    assert decide(View(answers, local=ONE, hosted=A, theirs=True)).action == "use"
    assert decide(View(answers, local=ONE, hosted=A)).action == "refuse"


def test_a_client_may_name_some_of_the_endpoints_or_spell_them_in_another_way() -> None:
    listed = frozenset(map(str, TRIO))
    assert decide(View((Probe(A, UP, "now", listed=listed),), local=ONE)).action == "use"
    spelled = tuple(Probe(Endpoint(f"10.0.0.{n}"), UP, "now", listed=listed) for n in range(3))
    assert decide(View(spelled)).action == "use"


def test_a_member_slot_that_the_store_does_not_know_of_is_never_taken() -> None:
    """A new store has not written its endpoints yet."""
    probes = (Probe(A, DEAD), Probe(B, UP), Probe(C, UP))
    assert decide(View(probes, local=ONE, members=MEMBERS[1:])).action == "wait"
    assert decide(View(probes, local=ONE, members=MEMBERS[1:], patient=True)).action == "use"


def test_a_member_slot_for_which_the_quorum_waits_is_joined() -> None:
    unstarted = Member(9, "", (peer_url(A),), started=False)
    assert decide(View(BESIDE_QUORUM, local=ONE, members=(unstarted, *MEMBERS[1:]))).action == "join"


def test_a_member_slot_is_not_replaced_while_too_few_members_answer() -> None:
    view = View(seen(a=DEAD, b=UP, c=MUTE), local=ONE, members=MEMBERS)
    assert decide(view).action == "wait"
    assert decide(View(view.probes, local=ONE, members=MEMBERS, patient=True)).action == "use"


def test_a_member_slot_is_not_replaced_in_a_store_that_may_be_stopping() -> None:
    assert decide(View(BESIDE_QUORUM, local=ONE, members=MEMBERS, idle=True)).action == "wait"
    assert decide(View(BESIDE_QUORUM, local=ONE, members=MEMBERS, idle=True, patient=True)).action == "replace"


@pytest.mark.parametrize("members", [None, tuple(Member(n, f"etcd{n}", (peer_url(e),)) for n, e in enumerate(TRIO))])
def test_a_cluster_that_is_not_ours_is_used_and_left_as_it_is(members: tuple[Member, ...] | None) -> None:
    assert decide(View(BESIDE_QUORUM, local=ONE, members=members)).action == "use"


def test_data_of_this_store_is_restarted_on() -> None:
    data = (Data(A, "now", 1),)
    assert decide(View(BESIDE_QUORUM, local=ONE, data=data, members=MEMBERS)).action == "restart"


@pytest.mark.parametrize("data", [Data(A, "then", 1), Data(A, "now", 7), Data(A)])
def test_data_of_another_store_or_of_a_removed_member_is_set_aside(data: Data) -> None:
    assert decide(View(BESIDE_QUORUM, local=ONE, data=(data,), members=MEMBERS)).action == "discard"


def test_a_member_that_others_remember_does_not_start_empty() -> None:
    view = View(seen(a=DEAD, b=MUTE, c=DEAD), local=ONE, remembered=ONE)
    assert decide(view).action == "wait"


def test_those_who_remember_without_a_majority_are_left_behind_in_the_end() -> None:
    view = View(seen(a=DEAD, b=MUTE, c=DEAD), local=ONE, remembered=ONE, patient=True)
    assert decide(view).action == "anew"


@pytest.mark.parametrize("reach", [Reach.UNREACHABLE, Reach.UNRESOLVABLE])
@pytest.mark.parametrize("remembered", [frozenset[Endpoint](), ONE])
def test_a_machine_that_reaches_no_majority_starts_no_empty_member(
    reach: Reach, remembered: frozenset[Endpoint]
) -> None:
    decision = decide(View(seen(a=DEAD, b=reach, c=reach), local=ONE, remembered=remembered, patient=True))
    assert decision.action == "wait"
    assert f"2 more members are needed for a majority of 3 (a:2379 {DEAD}; b:2379 {reach}" in decision.reason
    assert decide(View(seen(a=DEAD, b=reach, c=DEAD), local=ONE)).action == "start"
    view = View(seen(a=DEAD, b=reach, c=reach), local=ONE, data=(Data(A, "now", 1),))
    assert decide(view).action == "restart"


def test_a_hosted_member_that_answers_is_used() -> None:
    decision = decide(View(seen(a=UP, b=MUTE, c=DEAD), local=ONE, hosted=A))
    assert (decision.action, decision.endpoint) == ("use", A)


def test_a_hosted_member_with_an_earlier_stores_data_gives_way() -> None:
    view = View(seen(a=MUTE, b=UP, c=UP), local=ONE, hosted=A, data=(Data(A, "then", 1),))
    assert decide(view).action == "discard"


def test_a_hosted_member_that_is_just_forming_is_given_time() -> None:
    view = View(seen(a=MUTE, b=UP, c=UP), local=ONE, hosted=A, data=(Data(A),))
    assert decide(view).action == "wait"


def test_a_hosted_member_waits_until_it_is_known_whose_store_answers() -> None:
    probes = (Probe(A, MUTE), Probe(B, UP), Probe(C, UP))
    assert decide(View(probes, local=ONE, hosted=A, data=(Data(A, "then", 1),), patient=True)).action == "wait"


def test_a_hosted_member_that_catches_up_holds_nobody_up() -> None:
    view = View(seen(a=MUTE, b=UP, c=UP), local=ONE, hosted=A, data=(Data(A, "now", 1),), patient=True)
    assert decide(view).action == "use"


reaches = st.sampled_from(list(Reach))
subsets = st.frozensets(st.sampled_from(TRIO))


@given(st.tuples(reaches, reaches, reaches), subsets, subsets, subsets, subsets, st.booleans(), st.booleans())
def test_whatever_is_seen_no_member_slot_is_taken_that_is_served_held_or_elsewhere(
    reach: tuple[Reach, Reach, Reach],
    local: frozenset[Endpoint],
    busy: frozenset[Endpoint],
    kept: frozenset[Endpoint],
    remembered: frozenset[Endpoint],
    listed: bool,
    patient: bool,
) -> None:
    probes = seen(a=reach[0], b=reach[1], c=reach[2])
    data = tuple(Data(endpoint, "now", 1) for endpoint in kept)
    members = MEMBERS if listed else None
    decision = decide(View(probes, local, busy, data, members, False, None, remembered, patient))
    assert decision.reason
    if decision.action in ("start", "anew", "restart", "join", "replace", "discard"):
        assert decision.endpoint is not None
        assert decision.endpoint in local - busy
        assert reach[TRIO.index(decision.endpoint)] is DEAD
    if decision.action in ("start", "anew"):
        assert UP not in reach, "a new store beside one that answers"
        assert decision.endpoint not in kept
        assert sum(each in (Reach.UNREACHABLE, Reach.UNRESOLVABLE) for each in reach) < 2, "a quorum may live there"
    if decision.action == "replace":
        assert reach.count(UP) >= 2, "the living would lose their majority"


@given(st.integers(1, 65535))
def test_a_peer_port_is_a_port_that_needs_no_root(port: int) -> None:
    assert 1024 <= peer_port(port) <= 65535
    assert peer_port(port) != port


def test_peer_ports_differ_where_ports_do() -> None:
    assert len({peer_port(port) for port in range(1024, 55_536)}) == 55_536 - 1024


def test_one_members_peer_port_may_not_be_anothers_port() -> None:
    assert port_clash((Endpoint("a", 2379), Endpoint("b", 12379))) is None
    assert "12379" in str(port_clash((Endpoint("a", 2379), Endpoint("a", 12379))))


def test_every_machine_derives_the_same_cluster_from_the_same_endpoints() -> None:
    assert static_cluster((A, B, C)) == static_cluster((C, A, B))
    assert cluster_token((A, B, C)) == cluster_token((B, C, A))
    assert len({cluster_token(TRIO), cluster_token(TRIO, 2), cluster_token((A, B))}) == 3


def test_a_joining_member_names_itself_and_keeps_the_others_names() -> None:
    members = (Member(1, "elastic-run-b-2379", (peer_url(B),)), Member(2, "", (peer_url(A),), started=False))
    assert joining_cluster(members, TRIO) == "elastic-run-b-2379=http://b:12379,elastic-run-a-2379=http://a:12379"


def test_only_endpoints_that_nobody_serves_are_missing() -> None:
    assert missing_members(seen(a=DEAD, b=MUTE, c=Reach.UNRESOLVABLE)) == (A, C)
