"""Values survive the wire, and what is not a value is refused with the place where it goes wrong."""

import json
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.rendezvous.header import Eviction, Header, Incident, Leader, Tally
from elastic_run.rendezvous.member import Exit, Fingerprint, Member, Report
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.wire import Malformed, decode, encode


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
numbers = st.integers(-(2**40), 2**40)
fingerprints = st.builds(Fingerprint, text, st.lists(text, max_size=3).map(tuple), text, text, text)
exits = st.builds(
    Exit,
    numbers,
    numbers,
    numbers,
    numbers,
    st.none() | numbers,
    st.none() | numbers,
    text,
    text,
    text,
    st.floats(0, 1e9),
    st.booleans(),
)
reports = st.builds(
    Report,
    st.sampled_from(["waiting", "running", "failed", "succeeded", "leaving"]),
    numbers,
    st.lists(exits, max_size=2).map(tuple),
    text,
)
members = st.builds(
    Member,
    text,
    text,
    text,
    text,
    numbers,
    st.lists(numbers, max_size=3).map(tuple),
    fingerprints,
    text,
    text,
    st.none() | numbers,
    reports,
)
tallies = st.builds(Tally, numbers, numbers, numbers, numbers, numbers, text, numbers, numbers)
incidents = st.builds(
    Incident, numbers, st.sampled_from(["start", "failure", "lost"]), text, text, text, st.none() | exits
)
headers = st.builds(
    Header,
    number=numbers,
    run=text,
    state=st.sampled_from(["open", "waiting", "succeeded", "failed", "repeated", "preempted", "timeout"]),
    cause=st.sampled_from(["start", "failure", "lost", "left", "joined", "problem"]),
    reason=text,
    fingerprint=fingerprints,
    tally=tallies,
    incident=st.none() | incidents,
    deadline_seconds=st.floats(0, 1e9),
)
assignments = st.builds(Assignment, numbers, text, text, numbers, numbers, numbers, numbers, numbers, numbers, numbers)
others = st.one_of(st.builds(Leader, text, text, text), st.builds(Eviction, text, st.booleans()))


@settings(deadline=None, max_examples=60)
@given(st.one_of(members, headers, assignments, others))
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
        (b'{"text":"x","state":"half"}', r"Outer\.state: 'half' is none of"),
        (b'{"text":"x","state":[]}', r"Outer\.state: \[\] is none of"),
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
