"""What kind a column has, and what is said of a value that is not of it."""

import pytest

from elastic_run.adapters.readers.csv_kinds import kind_of, unfit


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-20", " 3"], "int64"),
        (["1", ""], "float64"),
        (["1.5", "1e3", "nan", "-inf"], "float64"),
        (["9223372036854775807"], "int64"),
        (["9223372036854775808"], "float64"),
        (["00123", "4"], "str"),
        (["0", "0.5"], "float64"),
        (["1_000"], "str"),
        (["٣"], "str"),  # a digit, to Python
        (["", ""], "str"),
        (["2026-11-27"], "str"),
        ([], "str"),
    ],
)
def test_a_column_has_the_narrowest_kind_of_all_its_values(values: list[str], kind: str) -> None:
    assert kind_of(values) == kind


@pytest.mark.parametrize(
    ("value", "kind", "why"),
    [
        ("x", "int64", "is 'x', and not a whole number of 64 bits"),
        ("1.0", "int64", "is '1.0', and not a whole number of 64 bits"),
        ("9" * 50, "int64", f"is {'9' * 40 + '...'!r}, and not a whole number of 64 bits"),
        ("1_0", "float64", "is '1_0', and not a number"),
        ("", "float64", ""),
        ("7", "int64", ""),
        ("x", "str", ""),
    ],
)
def test_what_does_not_fit_is_said_in_words(value: str, kind: str, why: str) -> None:
    assert unfit(value, kind) == why


def test_an_empty_whole_number_is_told_what_to_do() -> None:
    assert "kinds=" in unfit("", "int64")
