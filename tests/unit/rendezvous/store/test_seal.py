"""Values of a store that others may read."""

from hypothesis import given
from hypothesis import strategies as st

from elastic_run.rendezvous.identity.sealing import SecretSeal
from elastic_run.rendezvous.identity.secret import new_secret
from elastic_run.rendezvous.store.seal import SEALED, unreadable

SECRET = new_secret()


@given(st.binary(), st.binary())
def test_who_knows_the_secret_reads_what_another_process_has_written(key: bytes, value: bytes) -> None:
    sealed = SecretSeal(SECRET).sealed(key, value)
    assert SecretSeal(SECRET).opened(key, sealed) == value
    assert len(value) < 8 or value not in sealed.removeprefix(SEALED)


def test_a_value_is_read_under_its_own_key_and_with_its_own_secret_only() -> None:
    seal = SecretSeal(SECRET)
    sealed = seal.sealed(b"nodes/A", b"value")
    assert seal.opened(b"nodes/B", sealed) == SEALED, "a value that was copied to another key"
    assert SecretSeal(new_secret()).opened(b"nodes/A", sealed) == SEALED
    assert unreadable(SEALED) and unreadable(sealed) and not unreadable(b"{}")


@given(st.data())
def test_what_was_changed_cut_or_never_sealed_is_not_read(data: st.DataObject) -> None:
    seal = SecretSeal(SECRET)
    sealed = bytearray(seal.sealed(b"key", b"value"))
    at = data.draw(st.integers(0, len(sealed) - 1))
    assert seal.opened(b"key", bytes(sealed[:at])) == SEALED
    sealed[at] ^= data.draw(st.integers(1, 255))
    assert seal.opened(b"key", bytes(sealed)) == SEALED
    assert seal.opened(b"key", data.draw(st.binary())) == SEALED


def test_two_values_that_are_equal_look_different() -> None:
    seal = SecretSeal(SECRET)
    assert seal.sealed(b"key", b"value") != seal.sealed(b"key", b"value")


def test_writers_that_a_stranger_makes_up_take_no_memory() -> None:
    seal = SecretSeal(SECRET)
    for number in range(5_000):
        seal.opened(b"key", SEALED + number.to_bytes(16, "big") + bytes(64))
    assert len(vars(seal)["_others"]) <= 4_096
