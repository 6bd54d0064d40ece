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
        (["9223372036854775808"], "str"),
        (["1", "123456789012345678901"], "str"),
        (["9007199254740993", ""], "str"),
        (["9007199254740992", ""], "float64"),
        (["1e20", "9007199254740993"], "float64"),
        (["00123", "4"], "str"),
        (["4", " -00.5"], "str"),
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
        (
            "1.5",
            "int64",
            "is '1.5', and not a whole number of 64 bits (kinds={'n': 'float64'}, or --kinds=n:float64, reads it)",
        ),
        (
            "9" * 20,
            "int64",
            f"is '{'9' * 20}', and not a whole number of 64 bits (kinds={{'n': 'str'}}, or --kinds=n:str, reads it)",
        ),
        (
            "007",
            "int64",
            "is '007', with a zero in front, in a column of numbers (kinds={'n': 'str'}, or --kinds=n:str, keeps it)",
        ),
        (
            "-00.5",
            "float64",
            "is '-00.5', with a zero in front, in a column of numbers (kinds={'n': 'str'}, or --kinds=n:str, keeps it)",
        ),
        ("0", "int64", ""),
        ("0.5", "float64", ""),
        ("x" * 50, "int64", f"is {'x' * 40 + '...'!r}, and not a whole number of 64 bits"),
        ("1_0", "float64", "is '1_0', and not a number"),
        ("", "float64", ""),
        ("7", "int64", ""),
        ("x", "str", ""),
    ],
)
def test_what_does_not_fit_is_said_in_words(value: str, kind: str, why: str) -> None:
    assert unfit(value, kind, "n") == why


def test_an_empty_whole_number_is_told_what_to_do() -> None:
    assert "(kinds={'n': 'float64'}, or --kinds=n:float64, reads it as NaN)" in unfit("", "int64", "n")


def test_who_gives_a_kind_may_have_zeros_in_front() -> None:
    assert unfit("007", "int64", "n", codes=True) == ""
