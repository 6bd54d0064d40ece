"""From the text of CSV records to columns."""

import contextlib
import csv
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .contract import BadRow, Columns
from .csv_kinds import numbers, unfit, whole_numbers


def columns_of(
    records: Sequence[str], kinds: Mapping[str, str], delimiter: str, codes: Collection[str] = (), *, clean: bool = True
) -> Columns:
    """The columns of records, each with its line end or without.

    Args:
        records: decoded with `surrogateescape`.
        kinds: of the columns.
        delimiter: between fields.
        codes: columns in which numbers may have leading zeros.
        clean: all records are UTF-8.
    """
    if clean:
        with contextlib.suppress(ValueError, csv.Error):
            rows = list(csv.reader(records, delimiter=delimiter))
            if len(rows) == len(records):
                return Columns(_converted(rows, kinds, codes))
    good: list[list[str]] = []
    bad: list[BadRow] = []
    for position, record in enumerate(records):
        row, why = _row(record, kinds, delimiter, codes)
        if why:
            bad.append(BadRow(position, why))
        else:
            good.append(row)
    return Columns(_converted(good, kinds, codes), bad)


def fields_of(record: str, delimiter: str) -> list[str]:
    """The fields of one record. Raises ValueError or csv.Error."""
    record.encode()  # refuses what was no UTF-8
    [row] = csv.reader([record], delimiter=delimiter)
    return row


def _row(record: str, kinds: Mapping[str, str], delimiter: str, codes: Collection[str]) -> tuple[list[str], str]:
    """The fields of a record, and why they do not fit, in words."""
    try:
        row = fields_of(record, delimiter)
    except UnicodeEncodeError as error:
        return [], f"it is not UTF-8, from character {error.start + 1} of the record on"
    except (ValueError, csv.Error) as error:
        return [], str(error)
    if len(row) != len(kinds):
        return [], f"it has {len(row)} fields, and the file has {len(kinds)} columns"
    for value, (name, kind) in zip(row, kinds.items(), strict=True):
        if why := unfit(value, kind, name, codes=name in codes):
            return [], f"column {name!r} {why}"
    return row, ""


def _converted(rows: Sequence[Sequence[str]], kinds: Mapping[str, str], codes: Collection[str]) -> dict[str, Any]:
    """The columns of rows. Raises ValueError where a row has other fields, or a value is not of its column's kind."""
    found: dict[str, Any] = {}
    for values, (name, kind) in zip(zip(*rows, strict=True) if rows else [()] * len(kinds), kinds.items(), strict=True):
        if kind == "int64":
            found[name] = np.array(whole_numbers(values, codes=name in codes), np.int64)
        elif kind == "float64":
            found[name] = np.array(numbers(values, codes=name in codes), np.float64)
        else:
            found[name] = list(values)
    return found
