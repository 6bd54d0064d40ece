"""A module's outputs for records as the files that `predict` writes."""

import csv
import io
from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor

from .errors import BadModel
from .user_model import Value, describe


def encode_csv(file: str, numbers: list[int], outputs: Mapping[str, Tensor]) -> bytes:
    """A line for each record, under a line of names."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "record", *outputs])
    texts = map(format_numbers, outputs.values())
    writer.writerows([file, *row] for row in zip(numbers, *texts, strict=True))
    return text.getvalue().encode()


def encode_parquet(file: str, numbers: list[int], outputs: Mapping[str, Tensor]) -> bytes:
    """The same columns, of the outputs' types."""
    pa: Any = import_module("pyarrow")  # Any: it has no types; here: CSV needs none
    columns: dict[str, Any] = {"file": pa.array([file] * len(numbers), pa.string())}
    columns["record"] = pa.array(numbers, pa.int64())
    for name, column in outputs.items():
        plain = column.float() if column.dtype == torch.bfloat16 else column  # numpy has no such type
        columns[name] = pa.array(plain.cpu().numpy())
    buffer = io.BytesIO()
    import_module("pyarrow.parquet").write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def format_numbers(column: Tensor) -> list[str]:
    """Whole ones whole, others with as many digits as tell them from all others of their type."""
    numbers = cast("list[float]", column.tolist())  # pyright: ignore[reportUnknownMemberType]  # torch has no type for it
    if column.dtype == torch.float64:
        return list(map(repr, numbers))
    return (
        [f"{number:.9g}" for number in numbers] if column.is_floating_point() else [f"{number:d}" for number in numbers]
    )


def name_columns(output: Value, count: int, name: str = "output") -> dict[str, Tensor]:
    """An output as columns: those of a matrix have numbers, those of a mapping its names. Raises BadModel."""
    if isinstance(output, Tensor) and output.ndim and len(output) == count:
        matrix = output.detach().reshape(count, -1)
        flat = [matrix[:, at] for at in range(matrix.shape[1])]
        return {name: flat[0]} if len(flat) == 1 else {f"{name}_{at}": each for at, each in enumerate(flat)}
    found: dict[str, Tensor] = {}
    if isinstance(output, Mapping):
        for key, each in cast("Mapping[str, Value]", output).items():
            found |= name_columns(each, count, str(key))
    elif isinstance(output, tuple):
        for at, each in enumerate(cast("tuple[Value, ...]", output)):
            found |= name_columns(each, count, f"{name}_{at}")
    else:
        raise BadModel(f"the module's output for {count} records is {describe(output)}: there is to be one for each")
    return found
