"""Values survive the wire, and what is not a value is refused with the place where it goes wrong."""

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.elastic_agent.workers.failure import describe, hint
from elastic_run.rendezvous.failure_detector import parse
from elastic_run.rendezvous.header import Eviction, Header, Incident, Leader, Tally
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Exit, Fingerprint, Member, Report
from elastic_run.rendezvous.node_reasons import LeaseExpired, NotReturned, PreemptionNotice, StartFailed
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.reasons import AllLeaving, Nodes, NodesLost, Notes, RestartsSpent, Suspended, WorkerFailed
from elastic_run.rendezvous.store.limits import check_key
from elastic_run.rendezvous.wire.values import Count, Malformed, Text, Within, decode, encode

from ....sampling import examples


@dataclass(frozen=True, slots=True)
class Inner:
    number: int


@dataclass(frozen=True, slots=True)
class Outer:
    text: str
    seconds: float = 1.5
    flag: bool = False
    state: Literal["on", "off"] = "on"
    maybe: int | None = None
    items: tuple[Inner, ...] = ()


text = st.text(max_size=20)
names = st.text(st.characters(categories=("L", "N", "P")), max_size=20)
counts = st.integers(0, 2**53 - 1)
workers = st.integers(1, 2**16)
fingerprints = st.builds(Fingerprint, text, st.lists(text, max_size=3).map(tuple), text, text, text)
exits = st.builds(
    Exit,
    counts,
    counts,
    counts,
    counts,
    st.none() | st.integers(-(2**40), 2**40),
    st.none() | counts,
    text,
    text,
    text,
    st.floats(0, 1e9),
    st.booleans(),
)

whys = st.one_of(
    st.builds(LeaseExpired),
    st.builds(PreemptionNotice, counts),
    st.builds(StartFailed, text),
    st.builds(NotReturned, st.booleans()),
)
reports = st.builds(
    Report,
    st.sampled_from(["waiting", "running", "failed", "succeeded", "leaving"]),
    counts,
    st.lists(exits, max_size=2).map(tuple),
    st.none() | whys,
)
members = st.builds(
    Member,
    names,
    names,
    names,
    names,
    workers,
    st.lists(st.integers(1, 65535), max_size=3).map(tuple),
    fingerprints,
    names,
    names,
    st.none() | counts,
    reports,
)
tallies = st.builds(Tally, counts, counts, counts, counts, counts, text, counts, counts)
failures = st.builds(WorkerFailed, names, counts, st.none() | st.integers(0, 255), st.none() | counts, text)
notes = st.lists(st.tuples(names, whys), max_size=6).map(Notes.of)
reasons = st.one_of(
    failures,
    st.builds(NodesLost, notes),
    st.builds(RestartsSpent, failures, counts, counts),
    st.builds(Suspended, st.builds(NodesLost, notes), counts, counts, counts, st.floats(0, 1e9)),
    st.builds(AllLeaving, st.lists(names, max_size=6).map(Nodes.of)),
)
incidents = st.builds(
    Incident,
    counts,
    st.sampled_from(["start", "failure", "lost"]),
    failures | st.builds(NodesLost, notes),
    names,
    names,
    st.none() | exits,
)
headers = st.builds(
    Header,
    number=counts,
    run=names,
    state=st.sampled_from(["open", "waiting", "succeeded", "failed", "repeated", "preempted", "timeout"]),
    cause=st.sampled_from(["start", "failure", "lost", "left", "joined", "problem"]),
    reason=reasons,
    fingerprint=fingerprints,
    tally=tallies,
    incident=st.none() | incidents,
    deadline_seconds=st.floats(0, 1e9),
)
assignments = st.builds(Assignment, counts, names, names, counts, counts, counts, workers, counts, counts, counts)
others = st.one_of(st.builds(Leader, names, names, names), st.builds(Eviction, whys, st.booleans()))
values = st.one_of(members, headers, assignments, others)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["\ud800", "\udc80", "a\nb", "x" * 70_000, "a/b", ":65536", "h:99999", "[::1]:0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
"""JSON, and what is no JSON but what Python reads as such."""


@settings(deadline=None, max_examples=60)
@given(values)
def test_what_is_encoded_is_decoded_to_the_same_value(value: object) -> None:
    assert decode(type(value), encode(value)) == value


def test_a_value_is_compact_json() -> None:
    assert encode(Inner(3)) == b'{"number":3}'


def test_text_of_any_kind_survives() -> None:
    strange = "ä€𝄞\x00\n\udc80"  # the last is what Python makes of a byte that is no UTF-8
    assert decode(Outer, encode(Outer(strange))).text == strange


def test_an_unknown_field_of_a_newer_version_is_ignored() -> None:
    assert decode(Inner, b'{"number":3,"new":[1,{}]}') == Inner(3)


def test_a_field_that_is_missing_takes_its_default() -> None:
    assert decode(Outer, b'{"text":"x"}') == Outer("x")


def test_a_whole_number_will_do_for_a_float() -> None:
    seconds = decode(Outer, b'{"text":"x","seconds":3}').seconds
    assert seconds == 3.0 and isinstance(seconds, float)


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"", "Outer: not JSON"),
        (b"\xff\xfe", "Outer: not JSON"),
        (b"[]", "Outer: expected an object"),
        (b"null", "Outer: expected an object"),
        (b"{}", r"Outer\.text: missing"),
        (b'{"text":3}', r"Outer\.text: expected str, found int"),
        (b'{"text":null}', r"Outer\.text: expected str, found NoneType"),
        (b'{"text":"x","seconds":"3"}', r"Outer\.seconds: expected float"),
        (b'{"text":"x","seconds":true}', r"Outer\.seconds: expected float"),
        (b'{"text":"x","flag":1}', r"Outer\.flag: expected bool"),
        (b'{"text":"x","state":"half"}', r"Outer\.state: 'half' is not one of"),
        (b'{"text":"x","state":[]}', r"Outer\.state: \[\] is not one of"),
        (b'{"text":"x","maybe":"3"}', r"Outer\.maybe: expected int"),
        (b'{"text":"x","maybe":true}', r"Outer\.maybe: expected int, found bool"),
        (b'{"text":"x","maybe":1.5}', r"Outer\.maybe: expected int, found float"),
        (b'{"text":"x","items":{}}', r"Outer\.items: expected a list"),
        (b'{"text":"x","items":[{"number":1},{"number":"2"}]}', r"Outer\.items\[1\]\.number: expected int"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(data: bytes, where: str) -> None:
    with pytest.raises(Malformed, match=where):
        decode(Outer, data)


@settings(deadline=None, max_examples=100)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["text", "seconds", "flag", "state", "maybe", "items", "number"]), inner)
        ),
        max_leaves=10,
    )
)
def test_any_other_json_is_a_value_or_malformed_and_nothing_else(raw: object) -> None:
    try:
        value = decode(Outer, json.dumps(raw).encode())
    except Malformed:
        return
    assert isinstance(value, Outer)


def test_json_that_is_nested_too_deeply_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode(Inner, b'{"number":' + b"[" * 100_000)


def test_a_number_that_no_float_holds_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode(Outer, b'{"text":"x","seconds":1' + b"0" * 400 + b"}")


@dataclass(frozen=True, slots=True)
class Bound:
    port: Annotated[int, Within(1, 65535)] = 1
    name: Annotated[str, Text(5, printable=True)] = ""
    several: Annotated[tuple[Inner, ...], Count(2)] = ()
    maybe: Annotated[int, Within(0, 3)] | None = None
    whole: int = 0
    seconds: float = 0.0
    text: str = ""


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b'{"port":65536}', r"Bound\.port: a number from 1 to 65535 is expected"),
        (b'{"port":0}', r"Bound\.port: a number from 1"),
        (b'{"name":"abcdef"}', r"Bound\.name: 6 characters, and at most 5"),
        (b'{"name":"a\\nb"}', r"Bound\.name: it holds what cannot be printed"),
        (b'{"name":"\\udc80"}', r"Bound\.name: it holds what cannot be printed"),
        (b'{"several":[{"number":1},{"number":1},{"number":1}]}', r"Bound\.several: 3 items, and at most 2"),
        (b'{"maybe":4}', r"Bound\.maybe: a number from 0 to 3"),
        (b'{"whole":9223372036854775808}', r"Bound\.whole: a number from -9223372036854775808"),
        (b'{"seconds":NaN}', r"Bound\.seconds: a finite number"),
        (b'{"seconds":1e999}', r"Bound\.seconds: a finite number"),
        (b'{"text":"\\ud800"}', r"Bound\.text: it is not a valid string"),
    ],
)
def test_what_is_out_of_bounds_is_refused_with_its_place(data: bytes, where: str) -> None:
    with pytest.raises(Malformed, match=where):
        decode(Bound, data)


def leaves(raw: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:  # Any: JSON
    """The path of every place in it, the root's first."""
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(raw, dict):
        items = raw.items()
    elif isinstance(raw, list):
        items = enumerate(raw)
    return [path, *(deeper for key, value in items for deeper in leaves(value, (*path, key)))]


def use(value: object) -> None:
    """What agents and masters do with a value that they have read: nothing of it may raise but what is caught there."""
    keys = Keys("job")
    encode(value)
    match value:
        case Member() | Leader():
            check_key(keys.node(value.node))
            keys.node(value.node).encode(errors="surrogateescape")
            keys.eviction(value.incarnation).encode()
            with contextlib.suppress(ValueError):
                host, port = parse(value.agent_address)
                host.encode()
                assert 0 < port < 65536
        case Header():
            keys.assignment(value.prefix, "a").encode()
            assert value.final in (True, False)
            str(value.reason).encode(errors="surrogateescape")
            for exit_ in [value.incident.exit] if value.incident and value.incident.exit else []:
                describe(exit_)
                hint(exit_)
        case Assignment():
            assert not value.fits or value.first_rank + value.nproc <= value.world_size
        case _:
            pass


@settings(deadline=None, max_examples=examples(400, 100))
@given(values, st.integers(0, 10_000), anything)
def test_a_value_with_anything_in_one_place_is_of_use_or_malformed(value: object, where: int, other: object) -> None:
    raw: Any = [json.loads(encode(value))]
    paths = leaves(raw)
    *way, last = paths[1 + where % (len(paths) - 1)]
    place = raw
    for key in way:
        place = place[key]
    place[last] = other
    try:
        found = decode(type(value), json.dumps(raw[0]).encode())
    except Malformed:
        return
    use(found)


@settings(deadline=None, max_examples=examples(200, 100))
@given(st.binary(max_size=300))
def test_bytes_of_any_kind_are_malformed_and_nothing_else(data: bytes) -> None:
    for kind in (Member, Header, Assignment, Leader, Eviction):
        with pytest.raises(Malformed):
            decode(kind, data)
