"""The layer of Keras: its gradients go with the records that a script names next, in loops of its own and in `fit`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elastic_run.tensorflow
from elastic_run.adapters.client import pushes
from elastic_run.adapters.servers import session
from elastic_run.adapters.servers.errors import TableMisused
from elastic_run.adapters.servers.session import ServersClient
from elastic_run.adapters.servers.specs import SGD, Zeros

from ....doubles.ledger_agent import alone
from ....doubles.many_servers import ManyServers, many_servers

pytestmark = pytest.mark.xdist_group("tensorflow-data")


@pytest.fixture(scope="module")
def tf() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        patch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
        yield pytest.importorskip("tensorflow")


@pytest.fixture
def servers() -> Iterator[ManyServers]:
    with many_servers(2) as made:
        yield made


@pytest.fixture
def client(servers: ManyServers, monkeypatch: pytest.MonkeyPatch) -> ServersClient:
    made = servers.client()
    monkeypatch.setattr(session, "session", lambda: made)
    monkeypatch.setattr(pushes, "registered", [made])
    return made


@pytest.fixture
def layer(tf: Any, client: ServersClient) -> Any:
    return elastic_run.tensorflow.Embedding("t", 1, SGD(1.0), Zeros())


def values(servers: ManyServers) -> dict[int, float]:
    return {id_: value for (_, id_), value in servers.rows.values.items()}


def step_of(tf: Any, layer: Any) -> Callable[[Any], Any]:
    def step(ids: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = -tf.reduce_sum(layer(ids))
        return tape.gradient(loss, layer.trainable_variables)

    return step


@pytest.mark.parametrize("graph", [False, True])
def test_each_row_counts_its_ids_whether_in_a_graph_or_not(
    tf: Any, client: ServersClient, servers: ManyServers, layer: Any, graph: bool
) -> None:
    step = step_of(tf, layer)
    step = tf.function(step) if graph else step
    for turn in range(3):
        (zero,) = step(tf.constant([[1, 2], [2, 7]], tf.int64))
        assert zero.shape == () and not zero.numpy()
        client.push("d", 0, 1, turn, turn + 1)
    assert values(servers) == {1: 3.0, 2: 6.0, 7: 3.0}
    assert layer.rows(np.array([2, 9])).numpy().tolist() == [[6.0], [0.0]]
    assert len(servers.rows.pushes) == 6  # one for each of two servers


def test_a_table_that_is_used_twice_in_a_step_has_the_sum(
    tf: Any, client: ServersClient, servers: ManyServers, layer: Any
) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([1, 2], tf.int64)) * layer(tf.constant([2, 3], tf.int64)) + 1)
        loss -= tf.reduce_sum(layer(tf.constant([2], tf.int64)))
    tape.gradient(loss, layer.trainable_variables)
    client.push("d", 0, 1, 0, 1)
    assert values(servers) == {1: 0.0, 2: 1.0, 3: 0.0}


def test_what_is_frozen_or_only_read_is_not_trained(
    tf: Any, client: ServersClient, servers: ManyServers, layer: Any
) -> None:
    layer(tf.constant([1], tf.int64))
    layer.trainable = False
    assert step_of(tf, layer)(tf.constant([1], tf.int64)) == []
    client.push("d", 0, 1, 0, 1)
    assert values(servers) == {}


def test_a_loop_that_names_no_records_is_refused_at_its_second_step(tf: Any, layer: Any) -> None:
    step, ids = step_of(tf, layer), tf.constant([1], tf.int64)
    step(ids)
    with pytest.raises(TableMisused, match=r"call shard.progress\(n\), shard.done\(\)"):
        step(ids)


def test_ids_that_are_no_int64_are_refused(tf: Any, layer: Any) -> None:
    with pytest.raises(TableMisused, match="table 't': ids are int32, and must be int64"):
        layer(tf.constant([1]))


def test_rows_that_were_fetched_ahead_are_taken(
    tf: Any, client: ServersClient, servers: ManyServers, layer: Any
) -> None:
    ids = np.array([4, 5])
    layer.prefetch(ids)
    ids[:] = 6  # the script's own array
    layer(tf.constant([4, 5], tf.int64))
    assert [type(request).__name__ for each in servers.servers for request in each.asked].count("PullRows") == 2


def test_fit_names_each_batch_of_a_shard(tf: Any, client: ServersClient, servers: ManyServers, layer: Any) -> None:
    inputs = tf.keras.Input((1,), dtype="int64")
    rows = layer(inputs)
    assert rows.shape == (None, 1, 1)
    model = tf.keras.Model(inputs, tf.keras.layers.Flatten()(rows))
    model.compile(optimizer="adam", loss=lambda _, found: -tf.reduce_sum(found))
    with alone(20, name="fitted") as data:
        for shard in data:
            ids = np.array(shard.indices)[:, None]
            elastic_run.tensorflow.fit_shard(model, shard, ids, np.zeros(len(ids)), batch_size=4)
            shard.done()
    assert values(servers) == dict.fromkeys(range(20), 1.0)
    ranges = {(each.shard_index, each.begin, each.end) for each in servers.rows.pushes}
    assert ranges == {(shard, begin, min(begin + 4, 10)) for shard in range(2) for begin in (0, 4, 8)}
    assert model.predict(np.array([[3]]), verbose=0).tolist() == [[1.0]]
    assert [each.numpy() for each in model.trainable_variables] == [0.0]


@pytest.mark.parametrize(("table", "name"), [("user id/é", "user_id__"), ("_", "table"), ("-a:b", "a_b")])
def test_a_table_may_have_any_name(tf: Any, client: ServersClient, servers: ManyServers, table: str, name: str) -> None:
    layer = elastic_run.tensorflow.Embedding(table, 1, SGD(1.0), Zeros())
    assert layer.name == name
    tf.function(step_of(tf, layer))(tf.constant([1], tf.int64))
    client.push("d", 0, 1, 0, 1)
    assert servers.rows.values == {(table, 1): 1.0}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras under numpy 2
def test_weights_are_saved_without_rows_and_a_whole_model_is_not(tf: Any, layer: Any, tmp_path: Path) -> None:
    model = tf.keras.Sequential([tf.keras.Input((), dtype="int64"), layer, tf.keras.layers.Dense(1)])
    model.save_weights(tmp_path / "it.weights.h5")
    model.load_weights(tmp_path / "it.weights.h5")
    with pytest.raises(TableMisused, match=r"save the rest by model.save_weights\(\), and the rows by"):
        model.save(tmp_path / "it.keras")


def test_a_tape_around_a_function_has_its_rows(
    tf: Any, client: ServersClient, servers: ManyServers, layer: Any
) -> None:
    function = tf.function(lambda ids: layer(ids))
    with tf.GradientTape() as tape:
        loss = -tf.reduce_sum(function(tf.constant([1, 1], tf.int64)))
    tape.gradient(loss, layer.trainable_variables)
    client.push("d", 0, 1, 0, 1)
    assert values(servers) == {1: 2.0}


def test_fit_without_a_shard_is_refused_at_its_second_step(tf: Any, layer: Any) -> None:
    model = tf.keras.Sequential([tf.keras.Input((), dtype="int64"), layer])
    model.compile(optimizer="sgd", loss=lambda _, found: -tf.reduce_sum(found))
    ids = np.arange(8)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"TableMisused: .*call shard.progress\(n\), shard.done\(\)"
    ):
        model.fit(ids, np.zeros(8), batch_size=4, verbose=0)


def test_what_fit_cannot_do_with_a_shard_is_said(tf: Any, layer: Any) -> None:
    model = tf.keras.Sequential([tf.keras.Input((), dtype="int64"), layer])
    model.compile(optimizer="sgd", loss=lambda _, found: -tf.reduce_sum(found), steps_per_execution=2)
    with alone(10, name="unfit") as data:
        shard = next(data)
        fit = elastic_run.tensorflow.fit_shard
        with pytest.raises(ValueError, match="4 rows for the 10 records of shard e00000-s000000000: give one for each"):
            fit(model, shard, np.arange(4), np.zeros(10), batch_size=4)
        with pytest.raises(ValueError, match="steps_per_execution=2: the records of each step are named after it"):
            fit(model, shard, np.arange(10), np.zeros(10), batch_size=5)
        shard.done()
