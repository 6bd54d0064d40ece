"""Parameters of a model, cut into rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elastic_run.adapters.servers.parameter_rows import COLUMNS, ParameterRows

SIZES = st.sampled_from([0, 1, COLUMNS - 1, COLUMNS, COLUMNS + 1, 5 * COLUMNS])


@given(sizes=st.lists(SIZES, max_size=5), data=st.data())
def test_what_is_cut_is_joined_again_and_no_two_parameters_share_a_row(sizes: list[int], data: st.DataObject) -> None:
    chosen = data.draw(st.permutations(range(len(sizes)))) if sizes else []
    chosen = chosen[: data.draw(st.integers(0, len(sizes)))]
    values = [np.arange(1, 1 + sizes[each], dtype=np.float32) * (1 + each) for each in chosen]
    rows = ParameterRows(sizes)
    ids, cut = rows.list_ids(chosen), rows.cut_values(chosen, values)
    assert cut.shape == (len(ids), COLUMNS) and len(set(ids.tolist())) == len(ids) <= rows.count
    assert [each.tolist() for each in rows.join_values(chosen, cut)] == [each.tolist() for each in values]
    assert cut.sum() == sum(each.sum() for each in values)  # the rest is zeros


def test_the_rows_of_all_parameters_count_from_zero() -> None:
    rows = ParameterRows([1, 0, COLUMNS + 1])
    assert rows.list_ids([2, 0]).tolist() == [1, 2, 0] and rows.count == 3
