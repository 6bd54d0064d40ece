"""What the suite promises of every test: a deadline, and a failure that is told at once."""

import signal
import time

import pytest


def test_every_test_has_a_deadline_by_signal() -> None:
    assert 200 < signal.getitimer(signal.ITIMER_REAL)[0] <= 300


@pytest.mark.parametrize("kind", [str, str.encode, str.splitlines])
def test_a_comparison_of_long_values_is_told_without_a_diff(kind: type) -> None:
    left, right = ("\n".join(f"[{prefix} rank {number}] a line" for number in range(50_000)) for prefix in ("a", "b"))
    began = time.process_time()
    with pytest.raises(AssertionError, match="the values differ first at character") as told:
        assert kind(left) == kind(right)
    assert len(str(told.value)) < 2000
    assert time.process_time() - began < 5, "a diff of them takes minutes"


def test_a_comparison_of_many_short_lines_is_told_without_a_diff() -> None:
    left, right = ("\n".join("ab"[number % step > 0] for number in range(1900)) for step in (2, 3))
    with pytest.raises(AssertionError, match="the values differ first at character"):
        assert left == right


def test_a_comparison_of_short_values_is_told_with_a_diff() -> None:
    with pytest.raises(AssertionError, match="- c"):
        assert "a\nb" == "a\nc"
