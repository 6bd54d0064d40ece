"""The area under the ROC curve, against its definition, however the records are divided."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elastic_run.adapters.models.auc import AUC
from elastic_run.adapters.models.errors import BadModel

RECORDS = st.lists(st.tuples(st.sampled_from([-1.5, 0.0, -0.0, 0.1, 2.0, math.inf]), st.booleans()), min_size=1)


@given(st.lists(RECORDS, min_size=1, max_size=4))
def test_it_is_the_share_of_pairs_in_order_whoever_had_which_record(parts: list[list[tuple[float, bool]]]) -> None:
    made = [AUC(torch.tensor([score for score, _ in part]), np.array([label for _, label in part])) for part in parts]
    carried = [AUC.from_values(json.loads(json.dumps(each.to_values()))) for each in made]
    records = [record for part in parts for record in part]
    positive = [score for score, label in records if label]
    negative = [score for score, label in records if not label]
    twice = sum(2 * (high > low) + (high == low) for high in positive for low in negative)
    area = AUC.merge(carried).compute_area()
    if positive and negative:
        assert area == twice / (2 * len(positive) * len(negative))
    else:
        assert math.isnan(area)


@pytest.mark.parametrize(
    ("scores", "labels", "told"),
    [
        ([0.5], [1, 0], "got 1 scores and 2 labels"),
        ([math.nan], [1], "got scores that are NaN"),
        ([0.5], [2], "got the label 2: a label is 0 or 1"),
    ],
)
def test_what_has_no_order_is_refused(scores: list[float], labels: list[int], told: str) -> None:
    with pytest.raises(BadModel, match=told):
        AUC(scores, labels)
