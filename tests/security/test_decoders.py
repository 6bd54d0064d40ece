"""Whatever bytes come, a decoder gives a value or its own error, in little memory."""

import base64
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastic_run.adapters.horovod.messages import Unexpected, read_registration
from elastic_run.adapters.horovod.requests import BadRequest, parse_head
from elastic_run.rendezvous.member import Member
from elastic_run.rendezvous.rpc.envelope import Caller, Hello
from elastic_run.rendezvous.wire.values import MOST_ITEMS, Malformed, decode, encode

from .decoders import DECODERS, feed

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)

FIELDS = ("version", "caller", "id", "code", "node", "incarnation", "report", "run", "number", "state", "kind", "rank")
likely = st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=6)

octets = st.one_of(
    st.binary(max_size=200),
    (json_values | likely).map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=60).map(base64.b64encode),
    json_values.map(lambda value: base64.b64encode(pickle.dumps(value))),
)


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=octets)
def test_a_decoder_raises_nothing_but_its_own_error(name: str, data: bytes) -> None:
    feed(name, data)


AWKWARD = {
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "deep settings": b"x = " + b"[" * 100_000,
    "deep names of settings": b"a." * 5_000 + b"b = 1",  # tomllib takes the square of it, of a file of the user's own
    "a long number": b"9" * 100_000,
    "a number of an exponent": b"1e999999999",
    "half a character": b'{"version":"\\ud800"}',
    "not a number": b'{"version":NaN}',
    "the same name twice": b'{"version":1,"version":[]}',
    "bytes of no text": b'\xff\xfe{"a":1}',
    "zeros": bytes(100_000),
    "a length of thousands of digits": b"GET / HTTP/1.1\r\nContent-Length: " + b"9" * 5000,
    "a long name": b'{"' + b"a" * 1_000_000 + b'":1}',
}


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("awkward", AWKWARD)
def test_a_decoder_lives_through_what_is_meant_to_break_it(name: str, awkward: str) -> None:
    feed(name, AWKWARD[awkward])


def test_a_value_has_only_so_many_items() -> None:
    with pytest.raises(Malformed, match=f"more than {MOST_ITEMS} items"):
        decode(Member, b"[" + b"{}," * MOST_ITEMS + b"{}]")
    greeting = Hello(Caller("run", "a", "A1"))
    assert decode(Hello, encode(greeting)) == greeting


def test_a_length_of_thousands_of_digits_is_no_request() -> None:
    with pytest.raises(BadRequest, match="no length of a body"):
        parse_head(AWKWARD["a length of thousands of digits"])


DEEP = b"\x80\x04})" + b"2\x86" * 60 + b"Ns."
"""A dict with one key: a tuple of twice the same, sixty times over, whose hash takes 2^60 steps in C."""


def test_a_pickle_whose_reader_would_hash_for_years_is_refused_at_once() -> None:
    with pytest.raises(Unexpected, match="it has EMPTY_TUPLE, and plain addresses"):
        read_registration(base64.b64encode(DEEP))
    colliding = pickle.dumps(({number * sys.hash_info.modulus: [] for number in range(1 << 10)}, b"secret"))
    with pytest.raises(Unexpected, match="it has LONG1, and plain addresses"):
        read_registration(base64.b64encode(colliding))
    with pytest.raises(subprocess.TimeoutExpired):  # the library's reader, without any class
        subprocess.run([sys.executable, "-c", f"import pickle; pickle.loads({DEEP!r})"], check=True, timeout=3)


ATTACK = b"\x80\x04Nr" + (100_000_000).to_bytes(4, "little") + b"."
"""A pickle of ten bytes, whose reader makes room for a hundred million values."""


def test_a_pickle_that_names_a_large_memo_takes_no_memory() -> None:
    with pytest.raises(Unexpected, match="it has NONE, and plain addresses"):
        read_registration(base64.b64encode(ATTACK))
    # The library's reader would.
    code = (
        f"import io, pickle, resource; pickle.Unpickler(io.BytesIO({ATTACK!r})).load(); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path("/"))
    assert int(found.stdout) > 500_000  # kilobytes
