"""What is told of a model file that cannot be used, before any of it runs."""

import pytest

from elastic_run.adapters.models.errors import BadModel
from elastic_run.adapters.models.model_source import check_source

WHOLE = "def forward(): ...\ndef loss(output, labels): ...\ndef optimizer(parameters): ...\ndef feed(columns): ...\n"


@pytest.mark.parametrize(
    "source",
    [
        WHOLE,
        WHOLE.replace("def loss(output, labels): ...", "loss = min"),
        WHOLE.replace("def loss(output, labels): ...", "from torch.nn.functional import mse_loss as loss"),
        WHOLE.replace("def loss(output, labels): ...", "try:\n    import loss\nexcept ImportError:\n    loss = min"),
        WHOLE.replace("def loss(output, labels): ...", "if True:\n    loss: object = min"),
        "from shared_model import *\n",
        b"\xef\xbb\xbf" + WHOLE.encode(),
        b"# coding: latin-1\nname = '\xe9'\n" + WHOLE.encode(),
    ],
)
def test_a_file_that_binds_the_four_names_is_taken(source: str | bytes) -> None:
    check_source(source, "model.py")


def test_a_missing_function_is_told_with_what_to_write() -> None:
    with pytest.raises(BadModel, match=r"model\.py has no feed\(\): add def feed\(columns\): \.\.\.  # returns inputs"):
        check_source(WHOLE.replace("feed", "fed"), "model.py")


def test_a_name_within_a_function_is_none_of_the_file() -> None:
    with pytest.raises(BadModel, match=r"has no loss\(\) and no optimizer\(\) and no feed\(\)"):
        check_source("def forward():\n    loss = optimizer = feed = min\n", "model.py")


def test_a_file_whose_encoding_is_another_than_it_says_is_told() -> None:
    with pytest.raises(BadModel, match=r"^model\.py, line 1 is no Python: .*'utf-8' codec can't decode byte 0xe9"):
        check_source(b"name = '\xe9'\n" + WHOLE.encode(), "model.py")


def test_a_syntax_error_is_told_with_its_line() -> None:
    with pytest.raises(BadModel, match=r"^model\.py, line 2 is no Python: "):
        check_source("import torch\ndef forward(:\n", "model.py")
