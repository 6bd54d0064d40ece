"""A module's outputs as columns, and as files."""

import io
import math

import pyarrow.parquet as pq
import pytest
import torch

from elastic_run.adapters.models.errors import BadModel
from elastic_run.adapters.models.outputs import encode_parquet, format_numbers, name_columns


def test_outputs_become_columns() -> None:
    matrix = torch.arange(6.0).reshape(3, 2)
    assert name_columns(matrix[:, 0], 3)["output"].tolist() == [0.0, 2.0, 4.0]
    assert list(name_columns(matrix, 3)) == ["output_0", "output_1"]
    assert list(name_columns({"p": matrix[:, :1], "q": (matrix, matrix[:, 0])}, 3)) == ["p", "q_0_0", "q_0_1", "q_1"]
    with pytest.raises(BadModel, match=r"the module's output for 3 records is a tensor \(2, 3\)"):
        name_columns(matrix.T, 3)


def test_outputs_are_written_with_all_their_digits() -> None:
    for column, wanted in [
        (torch.tensor([2**53 + 1, -1]), ["9007199254740993", "-1"]),
        (torch.tensor([True, False]), ["1", "0"]),
        (torch.tensor([0.1, 1.0]), ["0.100000001", "1"]),
        (torch.tensor([0.1, 1 / 3], dtype=torch.float64), ["0.1", "0.3333333333333333"]),
    ]:
        assert format_numbers(column) == wanted


def test_outputs_as_parquet_have_their_own_types() -> None:
    outputs = {
        "whole": torch.tensor([2**53 + 1, -1]),
        "score": torch.tensor([0.1, math.nan]),
        "double": torch.tensor([1 / 3, 2.0], dtype=torch.float64),
        "half": torch.tensor([0.5, 1.0], dtype=torch.bfloat16),
        "right": torch.tensor([True, False]),
    }
    types = ["float", "double", "float", "bool"]
    table = pq.read_table(io.BytesIO(encode_parquet("data/a.csv", [7, 9], outputs)))
    assert [str(each) for each in table.schema.types] == ["string", "int64", "int64", *types]
    found = table.to_pydict()
    assert found["file"] == ["data/a.csv"] * 2 and found["record"] == [7, 9]
    assert found["whole"] == [2**53 + 1, -1] and found["double"] == [1 / 3, 2.0] and found["right"] == [True, False]
    assert pq.read_table(io.BytesIO(encode_parquet("a", [], {}))).num_rows == 0
