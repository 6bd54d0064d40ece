"""What a `State` takes, what it goes back to, and what it refuses; in a world of one, without a launcher."""

import copy
import datetime
import random
import socket
from collections import defaultdict
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from elastic_run.adapters.client.commits import StateLost
from elastic_run.adapters.client.rounds import Rounds
from elastic_run.adapters.client.shards import shards
from elastic_run.adapters.torch import state as state_module
from elastic_run.adapters.torch.process_group import ElasticProcessGroup, ProcessGroupExists
from elastic_run.adapters.torch.state import State
from elastic_run.adapters.torch.tree import UnsupportedState
from elastic_run.adapters.torch.undo import SAMPLED_COMMITS


def parts() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def begun(**more: object) -> State:
    """A state that has its first commit."""
    model, optimizer = parts()
    state = State(model=model, optimizer=optimizer, **more)  # type: ignore[arg-type]
    state.sync()
    return state


def forward(state: State) -> None:
    state.model(torch.randn(8, 3)).sum().backward()


def step(state: State) -> None:
    state.optimizer.zero_grad()
    forward(state)
    state.optimizer.step()


def picture(state: State) -> str:
    """Everything in it, to the bit."""
    torch.set_printoptions(precision=17)
    return f"{state.model.state_dict()} {state.optimizer.state_dict()} {state.note}"


def test_who_goes_back_without_a_copy_is_told_and_nothing_is_changed() -> None:
    state = begun(note=0, copies="never")
    step(state)
    state.commit()
    step(state)
    state.note = 1
    before = picture(state)
    with pytest.raises(StateLost, match='without copies="never"'):
        state.restore()
    assert picture(state) == before
    assert state.step == 1


class TestRestoring:
    def test_undoes_what_a_forward_and_backward_pass_have_done(self) -> None:
        state = begun(note=[1])
        before, drawn = picture(state), (torch.get_rng_state(), random.getstate())
        forward(state)
        state.note.append(2)
        random.random()
        assert picture(state) != before
        state.restore()
        assert picture(state) == before
        assert all(parameter.grad is None for parameter in state.model.parameters())
        assert torch.equal(torch.get_rng_state(), drawn[0])
        assert random.getstate() == drawn[1]

    def test_freezes_again_what_was_frozen_at_the_last_commit(self) -> None:
        state = State(model=nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)))
        state.model[0].requires_grad_(False)
        state.sync()
        state.model.requires_grad_(True)
        state.restore()
        assert [each.requires_grad for each in state.model.parameters()] == [False, False, True, True]

    @pytest.mark.parametrize("commits", [0, 1, 3])
    def test_undoes_an_optimizers_step_and_the_state_that_its_first_step_made(self, commits: int) -> None:
        state = begun(note=0)
        for _ in range(commits):
            step(state)
            state.commit()
        before = picture(state)
        step(state)
        assert picture(state) != before
        state.restore()
        assert picture(state) == before
        assert state.step == commits

    def test_is_the_same_step_again(self) -> None:
        state = begun(note=0)
        step(state)
        state.commit()
        step(state)
        once = picture(state)
        state.restore()
        step(state)
        assert picture(state) == once

    def test_undoes_what_was_changed_by_hand_where_no_optimizer_belongs_to_the_state(self) -> None:
        model = nn.Linear(2, 1)
        state = State(model=model)
        state.sync()
        for _ in range(SAMPLED_COMMITS + 2):
            with torch.no_grad():
                model.weight += 1
            state.commit()
        before = model.weight.clone()
        with torch.no_grad():
            model.weight += 1
        state.restore()
        assert torch.equal(model.weight, before)

    @pytest.mark.parametrize("commits", [1, 3 * SAMPLED_COMMITS])
    def test_of_a_step_is_possible_in_its_first_collective_however_many_steps_had_none(self, commits: int) -> None:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            state = begun(note=0)
            for _ in range(commits):
                step(state)
                state.commit()
            before = picture(state)
            step(state)
            dist.all_reduce(torch.ones(1))  # for a log, say, which is written now and then
            state._restore()  # pyright: ignore[reportPrivateUsage]  # what is done where the process group has broken
            assert picture(state) == before
            state.sync()
            assert state.step == commits
        finally:
            dist.destroy_process_group()

    @pytest.mark.parametrize("commits", [1, 3 * SAMPLED_COMMITS])
    def test_undoes_the_first_change_by_hand_directly_after_a_commit(self, commits: int) -> None:
        state = begun(note=0)
        for _ in range(commits):
            step(state)
            state.commit()
        before = picture(state)
        with torch.no_grad():
            for weight in state.model.parameters():
                weight.clamp_(-0.01, 0.01)
        assert picture(state) != before
        state.restore()
        assert picture(state) == before

    @pytest.mark.parametrize("commits", [1, 3 * SAMPLED_COMMITS])
    def test_undoes_the_first_change_of_an_average_that_begins_late(self, commits: int) -> None:
        model, optimizer = parts()
        state = State(model=model, optimizer=optimizer, average=copy.deepcopy(model))
        state.sync()
        for _ in range(commits):
            step(state)
            state.commit()
        before = [each.clone() for each in state.average.parameters()]
        for _ in range(2):
            step(state)
            with torch.no_grad():
                for kept, live in zip(state.average.parameters(), model.parameters(), strict=True):
                    kept.lerp_(live, 0.5)
            assert not all(map(torch.equal, state.average.parameters(), before))
            state.restore()
            assert all(map(torch.equal, state.average.parameters(), before))

    def test_goes_back_to_what_another_rank_has_sent_and_not_to_an_older_commit(self) -> None:
        model, optimizer = parts()
        frozen = nn.Linear(2, 1)
        state = State(model=model, optimizer=optimizer, frozen=frozen)
        state.sync()
        state._undo.forget()
        frozen.weight.data.fill_(7.0)  # torch counts no change, as where it is received in place
        state.sync()
        with torch.no_grad():
            frozen.weight.add_(1)
        state.restore()
        assert frozen.weight.tolist() == [[7.0, 7.0]]

    def test_of_a_step_without_copies_leaves_no_state(self) -> None:
        state = begun(note=0, copies="never")
        step(state)
        state.commit()
        step(state)
        state._restore()  # pyright: ignore[reportPrivateUsage]  # what is done where the process group has broken
        with pytest.raises(StateLost, match="no living worker has a complete committed step"):
            state.sync()

    def test_of_a_step_that_has_collectives_itself_is_always_possible(self) -> None:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            model, _ = parts()
            state = State(model=model, optimizer=torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=2))
            state.sync()

            def closure() -> torch.Tensor:
                state.optimizer.zero_grad()
                loss = (state.model(torch.randn(8, 3)) - 1).square().mean()
                loss.backward()
                dist.all_reduce(torch.ones(1))
                return loss

            for _ in range(SAMPLED_COMMITS + 2):
                state.optimizer.step(closure)
                state.commit()
            before = [each.clone() for each in model.parameters()]
            state.optimizer.step(closure)
            assert any(not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
            state.restore()
            assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
        finally:
            dist.destroy_process_group()

    def test_with_a_second_optimizers_collectives_after_the_firsts_step_is_always_possible(self) -> None:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            one, other = nn.Linear(2, 1), nn.Linear(2, 1)
            first, second = torch.optim.SGD(one.parameters(), 0.1), torch.optim.SGD(other.parameters(), 0.1)
            state = State(one=one, other=other, first=first, second=second)
            state.sync()

            def half(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
                model(torch.ones(1, 2)).sum().backward()
                dist.all_reduce(torch.ones(1))
                optimizer.step()

            for _ in range(SAMPLED_COMMITS + 2):
                half(one, first)
                half(other, second)
                state.commit()
            before = one.weight.detach().clone()
            half(one, first)
            assert not torch.equal(one.weight, before)
            state.restore()
            assert torch.equal(one.weight, before)
        finally:
            dist.destroy_process_group()

    def test_of_a_pass_needs_none(self) -> None:
        state = begun(note=0, copies="never")
        step(state)
        state.commit()
        before = picture(state)
        forward(state)
        state.restore()
        assert picture(state) == before
        state.sync()

    def test_undoes_what_changes_beside_the_optimizer_once_it_has_been_seen_to(self) -> None:
        model, optimizer = parts()
        average, frozen = copy.deepcopy(model), nn.Linear(2, 1)
        state = State(model=model, optimizer=optimizer, average=average, frozen=frozen)
        state.sync()

        def turn() -> None:
            step(state)
            with torch.no_grad():
                for kept, live in zip(average.parameters(), model.parameters(), strict=True):
                    kept.lerp_(live, 0.5)

        for _ in range(SAMPLED_COMMITS + 2):
            turn()
            state.commit()
        with torch.no_grad():  # after the commit, and before the optimizer's step
            average[0].weight += 1
            before = average[0].weight.clone() - 1
        forward(state)
        state.restore()
        assert torch.allclose(average[0].weight, before)
        assert not state._undo._restless & {id(each) for each in frozen.parameters()}, "it is not copied"

    def test_takes_what_a_new_state_brings_for_no_change(self) -> None:
        model, optimizer = parts()
        frozen = nn.Linear(2, 1)
        state = State(model=model, optimizer=optimizer, frozen=frozen)
        state.sync()
        with torch.no_grad():  # as what another rank sends
            frozen.weight += 1
        state.sync()
        for _ in range(SAMPLED_COMMITS):
            step(state)
            state.commit()
        assert not state._undo._restless

    def test_undoes_what_is_changed_by_hand_before_the_optimizers_step_once_it_has_been_seen_to(self) -> None:
        state = begun(note=0)
        weight = state.model[0].weight
        for _ in range(SAMPLED_COMMITS + 2):
            with torch.no_grad():
                weight += 0.1
            step(state)
            state.commit()
        before = picture(state)
        with torch.no_grad():
            weight += 0.1
        forward(state)
        state.restore()
        assert picture(state) == before
        step(state)
        state.restore()
        assert picture(state) == before

    def test_of_an_optimizer_with_lists_brings_these_back_as_often_as_is_asked(self) -> None:
        model, _ = parts()
        state = State(model=model, optimizer=torch.optim.LBFGS(model.parameters(), max_iter=3))
        state.sync()
        torch.manual_seed(3)
        inputs = torch.randn(8, 3)

        def closure() -> torch.Tensor:
            state.optimizer.zero_grad()
            loss = (model(inputs) - 1).square().mean()
            loss.backward()
            return loss

        def lists() -> str:
            return str([dict(held) for held in state.optimizer.state.values()])

        state.optimizer.step(closure)
        state.commit()
        before = lists()
        for _ in range(2):
            state.optimizer.step(closure)
            assert lists() != before
            state.restore()
            assert lists() == before

    def test_is_possible_at_any_time(self) -> None:
        state = begun(note=0)
        for _ in range(SAMPLED_COMMITS + 1):
            step(state)
            state.commit()
        before = picture(state)
        step(state)
        state.restore()
        assert picture(state) == before

    def test_brings_schedulers_scalers_and_tensors_back(self) -> None:
        model, optimizer = parts()
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)  # pyright: ignore[reportPrivateImportUsage]
        state = State(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, seen=torch.zeros(2))
        state.sync()
        seen = state.seen
        step(state)
        scheduler.step()
        seen += 1
        state.restore()
        assert optimizer.param_groups[0]["lr"] == 0.1
        assert scheduler.last_epoch == 0
        assert seen.tolist() == [0, 0]
        assert state.seen is seen

    def test_lets_a_scaler_begin_the_step_again(self) -> None:
        model, optimizer = parts()
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)  # pyright: ignore[reportPrivateImportUsage]
        state = State(model=model, optimizer=optimizer, scaler=scaler)
        state.sync()
        for _ in range(2):
            scaler.scale(model(torch.randn(8, 3)).sum()).backward()
            scaler.unscale_(optimizer)
            state.restore()


class TestLeavingInOrder:
    def test_drops_what_was_added_up_since_the_commit(self) -> None:
        state = begun()
        step(state)
        state.commit()
        weight = state.model[0].weight.clone()
        statistics = state.model[1].running_mean.clone()
        forward(state)
        state._leave(broken=False)
        assert all(parameter.grad is None for parameter in state.model.parameters())
        assert torch.equal(state.model[1].running_mean, statistics)
        assert torch.equal(state.model[0].weight, weight)

    def test_loses_nothing_that_was_changed_after_the_last_commit(self) -> None:
        state = begun(copies="never")
        step(state)
        state.commit()
        step(state)
        weight = state.model[0].weight.clone()
        state._leave(broken=False)
        assert torch.equal(state.model[0].weight, weight)
        assert state._step == 1


class TestTheWrapping:
    def test_of_two_models_adds_up_the_gradients_of_both(self) -> None:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            state = State(one=nn.Linear(2, 1), other=nn.Linear(2, 1))
            seen: list[str] = []
            nets: dict[str, nn.Module] = {}
            for name in ("one", "other"):
                wrapped = state.ddp(getattr(state, name))
                wrapped.register_comm_hook(name, lambda who, bucket: seen.append(who) or _done(bucket))
                nets[name] = wrapped
            (nets["one"](torch.ones(1, 2)).sum() + nets["other"](torch.ones(1, 2)).sum()).backward()
            assert sorted(seen) == ["one", "other"]
            again = state.ddp(state.one)
            again.register_comm_hook("again", lambda who, bucket: seen.append(who) or _done(bucket))
            (again(torch.ones(1, 2)).sum() + nets["other"](torch.ones(1, 2)).sum()).backward()
            assert sorted(seen) == ["again", "one", "other", "other"]
        finally:
            dist.destroy_process_group()


def _done(bucket: Any) -> torch.futures.Future[torch.Tensor]:
    found: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    found.set_result(bucket.buffer())
    return found


def test_a_process_group_that_failed_while_it_connected_does_not_count_for_the_next() -> None:
    members = Rounds({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"})
    process_group = ElasticProcessGroup(members, None, None)
    with pytest.raises(RuntimeError):
        dist.init_process_group(
            "gloo", store=dist.HashStore(), rank=0, world_size=2, timeout=datetime.timedelta(seconds=0.1)
        )
    process_group.drop(broken=True)
    process_group.form(members.context)
    try:
        assert dist.group.WORLD.group_name == "0"
    finally:
        process_group.drop()


class TestRefusing:
    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ({"names": {"a", "b"}}, r"state\['names'\] is a builtins.set: .* nothing is pickled"),
            ({"ema": [nn.Linear(1, 1)]}, r"State\(ema=\.\.\.\) holds objects .* State\(ema_a=\.\.\., ema_b=\.\.\.\)"),
            ({"seen": defaultdict(int)}, r"state\['seen'\] is a defaultdict, which would arrive as a dict"),
            ({"rows": torch.eye(2).to_sparse()}, r"state\['rows'\] is a tensor of another kind \(torch.sparse_coo\)"),
            ({"model": nn.Linear(1, 1, device="meta")}, r"of another kind \(meta\)"),
            ({"model": nn.LazyLinear(1)}, "has no shape yet: run one forward pass"),
            ({"step": 3}, r"State\(step=\.\.\.\) would hide a part of State itself: choose another name"),
            ({"_inner": 3}, "choose another name"),
        ],
    )
    def test_names_what_cannot_be_a_part(self, values: dict[str, object], words: str) -> None:
        with pytest.raises(UnsupportedState, match=words):
            State(**values)  # type: ignore[arg-type]

    def test_leased_shards(self) -> None:
        with pytest.raises(UnsupportedState, match=r"State\(data=\.\.\.\) is leased from the job's master"):
            State(data=shards("train", 100, shard_size=10))

    def test_sharded_modules(self) -> None:
        class FullyShardedDataParallel(nn.Module):
            pass

        with pytest.raises(
            UnsupportedState, match=r"sharded over the ranks \(FullyShardedDataParallel\): after a loss no rank"
        ):
            State(model=nn.Sequential(FullyShardedDataParallel()))

    def test_another_word_for_copies(self) -> None:
        with pytest.raises(ValueError, match="choose"):
            State(copies="sometimes")  # type: ignore[arg-type]

    def test_what_it_does_not_have(self) -> None:
        with pytest.raises(AttributeError, match=r"this State has no 'epoch': give it to State\(epoch=\.\.\.\)"):
            _ = State(model=nn.Linear(1, 1)).epoch


def test_values_are_attributes() -> None:
    state = State(epoch=0)
    state.epoch += 1
    assert state.epoch == 1


def bring(source: State, target: State) -> None:
    """What travels, without a process group."""
    text, tensors = source._values.flattened(large=True)
    target._values.load(text, [each.clone() for each in tensors], large=True)


class Odd(nn.Linear):
    """With all that a module can have beside its parameters."""

    def __init__(self) -> None:
        super().__init__(2, 1)
        self.register_buffer("seen", torch.zeros(2), persistent=False)
        self.counted = 0

    def get_extra_state(self) -> int:
        return self.counted

    def set_extra_state(self, state: int) -> None:
        self.counted = state


class TestWhatAModuleHas:
    def test_travels_whole(self) -> None:
        one, other = Odd(), Odd()
        one.seen += 3
        one.counted = 4
        bring(State(model=one), State(model=other))
        assert torch.equal(other.seen, one.seen)
        assert other.counted == 4
        assert torch.equal(other.weight, one.weight)

    def test_is_undone_whole(self) -> None:
        model = Odd()
        state = State(model=model)
        state.sync()
        model.seen += 3
        model.counted = 4
        state.restore()
        assert model.seen.tolist() == [0, 0]
        assert model.counted == 0

    def test_is_undone_where_a_buffer_was_made_or_grew_since_the_commit(self) -> None:
        model = Odd()
        state = State(model=model)
        state.sync()
        model.register_buffer("mask", torch.ones(3))
        model.seen = torch.ones(5)
        state.restore()
        assert model.seen.tolist() == [0, 0]


class Keeps(torch.optim.SGD):
    """Keeps more than one tensor a parameter, of its own data type, changed in place."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                kept = self.state[parameter].setdefault("kept", [torch.zeros(1, dtype=torch.float64)])
                kept[0] += 1
                self.state[parameter].setdefault("wide", torch.full((1,), 1 / 3, dtype=torch.float64))
        return super().step(closure)


class TestAnOptimizersState:
    def test_is_undone_where_it_is_a_list_that_changes_in_place(self) -> None:
        model, _ = parts()
        state = State(model=model, optimizer=Keeps(model.parameters(), lr=0.1))
        state.sync()
        step(state)
        state.commit()
        step(state)
        state.restore()
        assert {float(kept["kept"][0]) for kept in state.optimizer.state.values()} == {1.0}

    def test_arrives_in_its_own_data_type(self) -> None:
        states: list[State] = []
        for _ in range(2):
            model, _ = parts()
            states.append(State(model=model, optimizer=Keeps(model.parameters(), lr=0.1)))
            states[-1].sync()
        step(states[0])
        bring(*states)
        assert {kept["wide"].dtype for kept in states[1].optimizer.state.values()} == {torch.float64}

    def test_must_belong_to_modules_of_the_state(self) -> None:
        body, head = nn.Linear(2, 2), nn.Linear(2, 1)
        optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
        with pytest.raises(UnsupportedState, match=r"changes 2 parameters that no module .* State\(head=head\)"):
            State(model=body, optimizer=optimizer)
        State(model=body, head=head, optimizer=optimizer)


def test_the_gradient_of_a_tensor_is_dropped_as_a_modules_is() -> None:
    weight = torch.ones(2, requires_grad=True)
    state = State(weight=weight, optimizer=torch.optim.SGD([weight], lr=0.1))
    state.sync()
    weight.sum().backward()
    state.restore()
    assert weight.grad is None


def test_a_value_may_become_another_kind() -> None:
    state = State(best=None, loss=torch.zeros(2))
    state.sync()
    state.best, state.loss = torch.ones(2), 0.5
    state.restore()
    assert state.best is None
    assert state.loss.tolist() == [0, 0]


@pytest.mark.parametrize("later", [0, 3 * SAMPLED_COMMITS])
def test_an_average_that_is_changed_past_torchs_back_is_noticed(later: int) -> None:
    model, optimizer = parts()
    average = copy.deepcopy(model)
    state = State(model=model, optimizer=optimizer, average=average)
    state.sync()

    def turn() -> None:
        step(state)
        for kept, live in zip(average.parameters(), model.parameters(), strict=True):
            kept.data.mul_(0.5).add_(live.data)

    for _ in range(later):
        step(state)
        state.commit()
    for _ in range(SAMPLED_COMMITS):
        turn()
        state.commit()
    before = [each.clone() for each in average.parameters()]
    for kept in average.parameters():
        kept.data.mul_(0.5)
    state.restore()
    assert all(map(torch.equal, average.parameters(), before))


def test_copies_undo_also_what_was_changed_past_torchs_back() -> None:
    state = begun(note=0)
    before = picture(state)
    state.model[0].weight.data.clamp_(-0.01, 0.01)
    state.restore()
    assert picture(state) == before
    step(state)
    state.restore()
    assert picture(state) == before


class Assigned(Rounds):
    """As under an agent."""

    alone = False  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"})


def test_the_scripts_own_groups_are_refused_in_words() -> None:
    members = Assigned()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(ProcessGroupExists, match=r"called init_process_group\(\) itself: remove that"):
            ElasticProcessGroup(members, None, None).form(members.context)
    finally:
        dist.destroy_process_group()


def test_every_socket_of_a_process_group_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    members, held = Assigned(), list[int]()
    monkeypatch.setattr(members, "register_sockets", held.extend)
    with ElasticProcessGroup(members, None, None)._captured():
        ends = socket.socketpair()
    assert held == sorted(each.fileno() for each in ends)
    for each in ends:
        each.close()


def test_a_second_training_under_a_launcher_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "_trains", False)
    monkeypatch.setattr(state_module, "Rounds", Assigned)
    state = State(note=0)
    next(state.attempts())
    with pytest.raises(RuntimeError, match=r"has already run a training function.* into one training function"):
        next(state.attempts())
