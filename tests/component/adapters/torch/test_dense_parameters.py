"""Models whose parameters are on servers, of one worker and of two, in this process."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elastic_run.adapters.servers import first_values, session, specs
from elastic_run.adapters.servers.errors import TableMisused
from elastic_run.adapters.servers.own_server import OwnServer
from elastic_run.adapters.servers.session import ServersClient
from elastic_run.adapters.torch import dense_parameters
from elastic_run.adapters.torch.dense_parameters import DenseParameters, on_servers

Make = Callable[[nn.Module], torch.optim.Optimizer]


class Workers:
    """Some, of one server."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.server = OwnServer()
        self._patch = patch
        self._shards = 0

    def begin(self) -> ServersClient:
        """Another one: what is declared next is declared by it."""
        made = ServersClient(self.server)
        self._patch.setattr(session, "session", lambda: made)
        return made

    def name(self, client: ServersClient) -> None:
        """It names records."""
        self._shards += 1
        client.push("d", self._shards, 1, 0, 1)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    return Workers(monkeypatch)


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 300, bias=False), nn.BatchNorm1d(300), nn.ReLU(), nn.Linear(300, 1))


def train(made: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    optimizer.zero_grad()
    loss = ((made(torch.randn(32, 5, generator=draws)) - torch.randn(32, 1, generator=draws)) ** 2).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(made.parameters(), 0.5)
    optimizer.step()
    return loss.detach()


def in_groups(made: nn.Module) -> torch.optim.Optimizer:
    assert isinstance(made, nn.Sequential)
    groups = [{"params": made[3].parameters(), "lr": 0.3}, {"params": [*made[0].parameters(), *made[1].parameters()]}]
    return torch.optim.Adam(groups, lr=0.01, betas=(0.8, 0.99), weight_decay=0.1, maximize=True)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda made: torch.optim.SGD(made.parameters(), 0.1, weight_decay=0.1), id="sgd"),
        pytest.param(lambda made: torch.optim.SGD(made.parameters(), 0.1, 0.9, weight_decay=0.1), id="momentum"),
        pytest.param(lambda made: torch.optim.Adagrad(made.parameters(), 0.1, eps=1e-8), id="adagrad"),
        pytest.param(in_groups, id="adam in groups"),
    ],
)
@pytest.mark.parametrize("pull_every", [1, 3])
def test_one_worker_trains_step_for_step_as_torch_does(workers: Workers, make: Make, pull_every: int) -> None:
    torch.manual_seed(0)
    client, mine, plain = workers.begin(), model(), model()
    plain.load_state_dict(mine.state_dict())
    optimizer, plainly = make(mine), make(plain)
    served = on_servers(mine, optimizer, pull_every=pull_every)
    if type(optimizer) is torch.optim.SGD and not optimizer.defaults["momentum"]:
        rates = [torch.optim.lr_scheduler.StepLR(each, 5, 0.5) for each in (optimizer, plainly)]
    else:
        rates = []
    for step in range(20):
        assert torch.allclose(train(mine, optimizer, step), train(plain, plainly, step), rtol=1e-4), step
        assert mine[0].weight.grad is not None
        workers.name(client)
        for rate in rates:
            rate.step()
    served.pull()
    for (path, found), wanted in zip(mine.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-5), path


def test_a_parameter_without_a_gradient_stays_as_it_is(workers: Workers) -> None:
    client = workers.begin()
    mine, plain = (nn.ParameterList([torch.ones(3), torch.ones(3), torch.ones(3)]) for _ in range(2))
    optimizer, plainly = (torch.optim.Adam(each.parameters(), weight_decay=0.1) for each in (mine, plain))
    served = on_servers(mine, optimizer)
    for used in (0, 1, 0):
        for each, step in ((mine, optimizer), (plain, plainly)):
            step.zero_grad()
            ((used + 1) * each[used].sum()).backward()
            step.step()
        workers.name(client)
        served.pull()
    assert torch.allclose(torch.stack(list(mine)), torch.stack(list(plain))) and mine[2].tolist() == [1.0] * 3


class Counter(nn.Module):
    """Counts the records that it is trained on."""

    def __init__(self, first: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.full((2, 300), first))

    def forward(self, records: int) -> Tensor:
        return -self.w.sum() * records


def counting(first: float, **options: int) -> tuple[Counter, torch.optim.Optimizer, DenseParameters]:
    optimizer = torch.optim.SGD((made := Counter(first)).parameters(), 1.0)
    return made, optimizer, on_servers(made, optimizer, **options)


def count(made: Counter, optimizer: torch.optim.Optimizer, records: int) -> None:
    optimizer.zero_grad()
    made(records).backward()
    optimizer.step()


def test_workers_begin_with_the_values_of_the_first_and_each_has_what_all_have_trained(workers: Workers) -> None:
    one, (first, of_one, _) = workers.begin(), counting(1000.0)
    two, (second, of_two, served) = workers.begin(), counting(7.0, pull_every=2)
    assert second.w.unique().tolist() == [1000.0]
    count(first, of_one, 1)
    workers.name(one)
    count(second, of_two, 10)  # the first step pulls
    assert second.w.unique().tolist() == [1011.0]
    workers.name(two)
    count(first, of_one, 100)
    workers.name(one)
    count(second, of_two, 1000)  # with what is here
    assert first.w.unique().tolist() == [1011.0] and second.w.unique().tolist() == [2011.0]
    workers.name(two)
    second(0)
    assert second.w.unique().tolist() == [2111.0]
    count(first, of_one, 20_000)
    workers.name(one)
    assert second.eval()(0) == 0 and second.w.unique().tolist() == [2111.0]
    served.pull()
    assert second.w.unique().tolist() == [22111.0]


class Lost(Exception):
    """A worker is."""


class Loses(ServersClient):
    """A worker, to whom something happens before one of its pushes of first values."""

    def __init__(self, server: OwnServer, at: int, happens: Callable[[], None]) -> None:
        super().__init__(server)
        self._left = at
        self._happens = happens

    def push_once(self, table: str, part: int, ids: Any, gradients: Any, piece: int = 0) -> None:  # Any: arrays
        self._left -= 1
        if self._left < 0:
            self._left = 1 << 30
            self._happens()
        super().push_once(table, part, ids, gradients, piece)


def lose() -> None:
    raise Lost


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> specs.TableSpec:
    """Nobody waits for long, and values are pushed by two rows."""
    monkeypatch.setattr(first_values, "SECONDS", 0.01)
    monkeypatch.setattr(first_values, "PIECE", 2)
    return first_values.spec_of_first_values("m", 256, 0)


def values_of(worker: int) -> "np.ndarray[Any, np.dtype[np.float32]]":
    return np.random.default_rng(worker).standard_normal((5, 256)).astype(np.float32)


@pytest.mark.parametrize("at", range(6))
def test_all_have_the_values_of_one_worker_whenever_the_first_is_lost(in_pieces: specs.TableSpec, at: int) -> None:
    server = OwnServer()
    with pytest.raises(Lost):  # before its claim, a piece, the stamp, or after all that
        first_values.agree_on_first_values(Loses(server, at, lose), in_pieces, values_of(1))
        raise Lost
    with pytest.raises(Lost):  # and the second
        first_values.agree_on_first_values(Loses(server, 3, lose), in_pieces, values_of(2))
        raise Lost
    agreed = [first_values.agree_on_first_values(ServersClient(server), in_pieces, values_of(each)) for each in (3, 4)]
    assert agreed[0].tobytes() == agreed[1].tobytes()
    assert agreed[0].tobytes() == values_of(1 if at == 5 else 3).tobytes()


@pytest.mark.parametrize("at", range(1, 5))
def test_a_worker_that_was_slow_to_write_its_values_takes_those_of_the_next(
    in_pieces: specs.TableSpec, at: int
) -> None:
    server, others = OwnServer(), list[bytes]()

    def go_on_without() -> None:
        agreed = first_values.agree_on_first_values(ServersClient(server), in_pieces, values_of(2))
        others.append(agreed.tobytes())

    slow = first_values.agree_on_first_values(Loses(server, at, go_on_without), in_pieces, values_of(1))
    assert [slow.tobytes()] == others == [values_of(2).tobytes()]


def test_a_worker_waits_while_pieces_come(in_pieces: specs.TableSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    server, pauses = OwnServer(), list[float]()

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise Lost

    def look() -> None:
        monkeypatch.setattr(first_values, "SECONDS", 300.0)
        monkeypatch.setattr(first_values.time, "sleep", wait)
        with pytest.raises(Lost):
            first_values.agree_on_first_values(ServersClient(server), in_pieces, values_of(2))

    found = first_values.agree_on_first_values(Loses(server, 2, look), in_pieces, values_of(1))
    assert len(pauses) == 3 and found.tobytes() == values_of(1).tobytes()


def test_a_step_begins_with_a_pull_that_waits_for_slower_workers_also_after_an_evaluation(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, waits = workers.begin(), list[bool]()
    pull = client.pull_for_step

    def note(*words: Any, trains: bool) -> Any:  # Any: as the client has it
        waits.append(trains)
        return pull(*words, trains=trains)

    monkeypatch.setattr(client, "pull_for_step", note)
    made, optimizer, _ = counting(0.0, max_staleness=2)
    assert client.specs[0].max_staleness == 2 and waits == [False]
    for _ in range(2):
        waits.clear()
        count(made, optimizer, 1)
        assert waits == [True]
        workers.name(client)
    made.eval()(1)
    made(1)
    assert waits == [True, False]
    count(made.train(), optimizer, 1)
    made(1)
    assert waits == [True, False, True]


def test_a_copy_of_the_model_is_a_model_of_its_own(workers: Workers) -> None:
    client, (made, optimizer, _) = workers.begin(), counting(0.0)
    kept = copy.deepcopy(made)
    count(made, optimizer, 5)
    workers.name(client)
    made(0)
    assert kept(0) == 0 and kept.w.unique().tolist() == [0.0] and made.w.unique().tolist() == [5.0]


def test_a_script_that_names_no_records_is_refused_at_its_second_step_whatever_it_named_before(
    workers: Workers,
) -> None:
    client = workers.begin()
    made, optimizer, _ = counting(0.0)
    count(made, optimizer, 1)
    workers.name(client)
    count(made, optimizer, 1)
    with pytest.raises(TableMisused, match=r"call shard.progress\(n\), shard.done\(\)"):
        count(made, optimizer, 1)


@pytest.mark.parametrize("groups", [[[1], [0]], [[0, 1]]], ids=["swapped", "joined"])
def test_another_grouping_of_the_same_parameters_is_refused(workers: Workers, groups: list[list[int]]) -> None:
    for chosen in ([[0], [1]], groups):
        workers.begin()
        made = nn.ParameterList([torch.zeros(3), torch.zeros(5)])
        optimizer = torch.optim.SGD([{"params": [made[each] for each in group]} for group in chosen], 1.0)
        if chosen is groups:
            with pytest.raises(TableMisused, match="names, shapes and groups in the optimizer"):
                on_servers(made, optimizer)
        else:
            on_servers(made, optimizer)


def test_a_forked_process_uses_the_parameters_as_they_were_and_asks_no_server(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, (made, optimizer, served) = workers.begin(), counting(1.0)
    count(made, optimizer, 1)
    workers.name(client)
    monkeypatch.setattr(dense_parameters.os, "getpid", lambda: -1)
    assert made(1) == -600.0
    for use in (served.pull, optimizer.step):
        with pytest.raises(TableMisused, match="was forked from the one that trains the model"):
            use()


def test_what_a_pull_would_undo_is_not_loaded_but_into_a_copy(workers: Workers) -> None:
    workers.begin()
    made, kept = model(), model()
    on_servers(made, optimizer := torch.optim.SGD(made.parameters(), 0.1))
    for module, other in ((made, kept), (made[0], kept[0])):
        with pytest.raises(TableMisused, match="load_state_dict would change this worker alone"):
            module.load_state_dict(other.state_dict())
    with pytest.raises(TableMisused, match="load_state_dict of the optimizer would change this worker alone"):
        optimizer.load_state_dict(optimizer.state_dict())
    made.load_state_dict({"1.running_mean": torch.ones(300)}, strict=False)
    copy.deepcopy(made).load_state_dict(kept.state_dict())
    assert made[1].running_mean.tolist() == [1.0] * 300


def stepped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    for group in optimizer.param_groups:
        for each in group["params"]:
            each.grad = torch.zeros_like(each)
    optimizer.step()
    return optimizer


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda of: torch.optim.SGD(of, 0.1, 0.9, nesterov=True), r"SGD\(nesterov=True\): servers make no such"),
        (lambda of: torch.optim.SGD(of, 0.1, 0.9, 0.5), r"dampening=0.5"),
        (lambda of: torch.optim.Adagrad(of, lr_decay=0.1), r"lr_decay=0.1"),
        (lambda of: torch.optim.Adam(of, amsgrad=True), r"amsgrad=True"),
        (lambda of: torch.optim.AdamW(of), r"AdamW\(decoupled_weight_decay=True\)"),
        (lambda of: torch.optim.RMSprop(of), r"RMSprop: servers know torch.optim.SGD, Adagrad and Adam"),
        (lambda of: torch.optim.Adam(of, 0.0), r"Adam\(lr=0.0\) must be above 0"),
        (lambda of: stepped(torch.optim.Adam(of)), "the optimizer has made steps already"),
        (
            lambda of: torch.optim.SGD(list(of)[1:], 0.1),
            "0.weight is not in the optimizer: give it to it, or freeze it",
        ),
        (lambda of: torch.optim.SGD([*of, nn.Parameter(torch.zeros(1))], 0.1), "lacks parameters that the optimizer"),
    ],
)
def test_an_optimizer_that_servers_do_not_follow_is_refused(workers: Workers, make: object, words: str) -> None:
    workers.begin()
    assert callable(make)
    with pytest.raises(TableMisused, match=words):
        on_servers(made := nn.Sequential(nn.Linear(2, 1)), make(made.parameters()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda made: made.double(), "w is torch.float64, and must be torch.float32"),
        (lambda made: made.w.data.fill_(float("nan")), "parameters that are no finite numbers"),
        (
            lambda made: setattr(made.w, "data", torch.zeros(3)),
            "declare it the same on every rank .*parameters' names, shapes",
        ),
    ],
)
def test_a_model_that_is_not_that_of_the_others_or_cannot_be_there_is_refused(
    workers: Workers, change: object, words: str
) -> None:
    workers.begin()
    counting(0.0)
    workers.begin()
    assert callable(change)
    change(made := Counter(0.0))
    with pytest.raises(TableMisused, match=words):
        on_servers(made, torch.optim.SGD(made.parameters(), 0.1))


def test_what_is_changed_later_is_refused_at_the_next_step(workers: Workers) -> None:
    workers.begin()
    made = Counter(0.0)
    optimizer = torch.optim.Adam(made.parameters())
    on_servers(made, optimizer)
    with pytest.raises(TableMisused, match="another name="):
        on_servers(made, optimizer)
    with pytest.raises(TableMisused, match=r"step\(closure\) computes gradients too late"):
        optimizer.step(lambda: 0.0)
    optimizer.param_groups[0]["lr"] = 0.5
    with pytest.raises(TableMisused, match="the settings of the optimizer have changed since on_servers"):
        optimizer.step()
    with pytest.raises(TableMisused, match="pull_every=0 must be a number of steps from 1"):
        counting(0.0, pull_every=0)
