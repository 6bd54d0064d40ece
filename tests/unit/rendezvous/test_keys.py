"""Names of jobs and nodes as parts of keys."""

import pytest

from elastic_run.rendezvous.keys import Keys


@pytest.mark.parametrize("node", ["A", "rack/1", "../../etc", "100%", "%2F", "\u00e9\u6f22", "\udcff"])
def test_a_node_is_found_again_in_its_key_whatever_its_name(node: str) -> None:
    keys = Keys("job/of mine")
    key = keys.node(node)
    assert keys.node_at(key) == node
    assert "/" not in key.removeprefix(keys.nodes)
