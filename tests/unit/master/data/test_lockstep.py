"""Synchronous training by arithmetic, against a twin that deals records out from explicit lists."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.master.data.lockstep import (
    BadSampler,
    BadSamplerState,
    Plan,
    Position,
    SamplerMisused,
    WorldSizeRefused,
    disagreement,
)

from ....sampling import examples

MANY = settings(max_examples=examples(1000, 150), deadline=None)
LONG = settings(max_examples=examples(500, 40), deadline=None)  # each is a whole training

Dealt = list[list[list[int]]]
"""One step: per rank, per micro-batch, the records."""


# -- the twin ---------------------------------------------------------------------------------------------------------


def cut(records: Sequence[int], parts: int) -> list[list[int]]:
    """Deals out one by one who gets how many, and then gives everyone that many in order."""
    sizes = [0] * parts
    for index in range(len(records)):
        sizes[index % parts] += 1
    rest = iter(records)
    return [list(itertools.islice(rest, size)) for size in sizes]


def twin(plan: Plan, order: Sequence[int], consumed: int, world: int) -> list[Dealt]:
    """Every step from `consumed` to the end of the epoch."""
    left = list(order[consumed:])
    whole = plan.fixed_global_batch or world * plan.batch * plan.accumulate
    shortest = plan.fixed_global_batch or max(world * plan.accumulate, min(plan.largest_world, whole))
    steps: list[list[int]] = []
    while left:
        if len(left) < whole and plan.tail == "drop":
            break
        if len(left) < whole and plan.tail == "pad":
            left += itertools.islice(itertools.cycle(order), whole - len(left))
        if plan.tail == "uneven" and len(left) - whole < shortest:
            steps.append(left)
            break
        steps.append(left[:whole])
        left = left[whole:]
    dealt: list[Dealt] = []
    for step in steps:
        if len(step) < world:
            dealt.append([[[step[rank % len(step)]]] for rank in range(world)])
            continue
        parts = plan.accumulate
        if plan.fixed_global_batch:
            parts = next(n for n in itertools.count(1) if world * plan.batch * n >= len(step))
        while parts * world > len(step) and parts > 1:
            parts -= 1
        dealt.append([cut(share, parts) for share in cut(step, world)])
    return dealt


def steps_of(plan: Plan, position: Position, world: int) -> list[Dealt]:
    """The same by the product."""
    order = plan.order(position.epoch)
    return [
        [
            [order.records(part) for part in plan.step(position, world, ahead).micro_batches(rank)]
            for rank in range(world)
        ]
        for ahead in range(plan.steps_left(position, world))
    ]


def global_batch(step: Dealt) -> list[int]:
    return [record for share in step for part in share for record in part]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    fixed = draw(st.none() | st.integers(1, 20))
    return Plan(
        size=draw(st.integers(1, 60)),
        batch=draw(st.integers(1, 6)),
        epochs=draw(st.integers(1, 3)),
        tail=draw(st.sampled_from(["uneven", "drop", "pad"])),
        accumulate=1 if fixed else draw(st.integers(1, 4)),
        fixed_global_batch=fixed,
        shuffle=draw(st.booleans()),
        seed=draw(st.integers(-5, 5)),
        largest_world=draw(st.integers(0, 12)),
    )


def worlds(plan: Plan, most: int = 9) -> list[int]:
    """Those that can train so."""
    found: list[int] = []
    for world in range(1, most):
        try:
            plan.check(world)
        except WorldSizeRefused:
            continue
        found.append(world)
    return found


@MANY
@given(plans(), st.data())
def test_every_step_is_what_dealing_out_by_hand_gives(plan: Plan, data: st.DataObject) -> None:
    if not (possible := worlds(plan)):
        return
    world = data.draw(st.sampled_from(possible))
    position = plan.settled(Position(0, data.draw(st.integers(0, plan.size))), world)
    if plan.done(position):
        assert steps_of(plan, position, world) == []
        return
    order = plan.order(position.epoch).records(range(plan.size))
    assert sorted(order) == list(range(plan.size))
    steps = steps_of(plan, position, world)
    assert steps == twin(plan, order, position.consumed, world)
    assert steps, "a settled position has something to do"
    assert plan.micro_batches_left(position, world) == sum(len(step[0]) for step in steps)


@MANY
@given(plans(), st.data())
def test_ranks_have_equal_numbers_of_batches_and_none_is_empty_or_too_large(plan: Plan, data: st.DataObject) -> None:
    if not (possible := worlds(plan)):
        return
    world = data.draw(st.sampled_from(possible))
    position = plan.settled(Position(0, data.draw(st.integers(0, plan.size))), world)
    for ahead in range(plan.steps_left(position, world)):
        step = plan.step(position, world, ahead)
        parts = [step.micro_batches(rank) for rank in range(world)]
        assert {len(each) for each in parts} == {step.accumulate}
        sizes = {len(part) for each in parts for part in each}
        assert min(sizes) > 0
        assert max(sizes) <= max(2 * plan.batch, plan.batch + 1)
        if plan.largest_world <= world * plan.accumulate:
            assert max(sizes) <= plan.batch + 1
        shares = [sum(map(len, each)) for each in parts]
        assert max(shares) - min(shares) <= 1
        weights = [step.weight(rank) for rank in range(world)]
        assert sum(weights) == pytest.approx(world)
        for rank in range(world):
            assert sum(step.weights(rank)) == pytest.approx(weights[rank])


@LONG
@given(plans(), st.data())
def test_the_history_of_commits_has_each_record_once_whatever_the_world_does(plan: Plan, data: st.DataObject) -> None:
    if not (possible := worlds(plan)):
        return
    cuts = data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, plan.size)), max_size=4), label="cuts")
    plan = replace(plan, cuts=tuple(sorted(cuts)))
    history: list[tuple[int, list[int], int]] = []  # per commit: epoch, records, of which repeated
    saved, position = 0, Position()
    checkpoint = plan.state(position)
    for _ in range(20):
        world = data.draw(st.sampled_from(possible), label="world")
        position = plan.restored(checkpoint)
        del history[saved:]
        before = position
        position = plan.settled(position, world)
        for _ in range(data.draw(st.integers(0, 12), label="commits")):
            if plan.done(position):
                break
            step = plan.step(position, world)
            records = plan.order(step.epoch).records(range(step.start, step.start + step.count))
            seen = [
                record
                for rank in range(world)
                for part, weight in zip(step.micro_batches(rank), step.weights(rank), strict=True)
                for record in plan.order(step.epoch).records(part)
                if weight
            ]
            assert seen == records
            assert not any(
                at == step.epoch and step.start < cut < step.start + step.count for at, cut in cuts if cut < plan.size
            )
            history.append((step.epoch, records, max(0, step.start + step.count - step.size)))
            before, position = position, plan.after(position, world)
            assert position.step == before.step + 1 == len(history)
        if data.draw(st.booleans(), label="checkpoint"):
            saved, checkpoint = len(history), plan.state(position)
            if plan.done(position):
                break
    else:  # what is left, without a fault
        world = possible[0]
        position = plan.settled(plan.restored(checkpoint), world)
        del history[saved:]
        while not plan.done(position):
            step = plan.step(position, world)
            records = plan.order(step.epoch).records(range(step.start, step.start + step.count))
            history.append((step.epoch, records, max(0, step.start + step.count - step.size)))
            position = plan.after(position, world)
    assert [epoch for epoch, _, _ in history] == sorted(epoch for epoch, _, _ in history)
    for epoch in range(plan.epochs):
        counts = Counter(record for of, records, _ in history if of == epoch for record in records)
        missing = plan.size - len(counts)
        twice = sum(counts.values()) - len(counts)
        if plan.tail == "uneven":
            assert (missing, twice) == (0, 0)
        elif plan.tail == "drop":
            assert twice == 0
            assert missing < max(plan.full(world) for world in possible)
        else:
            assert missing == 0
            assert twice == sum(repeated for of, _, repeated in history if of == epoch)
            assert twice < max(plan.full(world) for world in possible)


@LONG
@given(plans(), st.data())
def test_with_the_largest_world_known_no_growth_leaves_a_rank_without_a_record(plan: Plan, data: st.DataObject) -> None:
    possible = worlds(plan)
    plan = replace(plan, tail="uneven", largest_world=max(possible, default=0))
    position = Position()
    while possible and not plan.done(position):
        world = data.draw(st.sampled_from(possible))
        step = plan.step(position, world)
        if plan.full(world) >= plan.largest_world:  # a step is large enough to leave a record for everyone
            left = plan.size - step.start - step.count
            assert left == 0 or left >= plan.largest_world
        position = plan.after(position, world)


@LONG
@given(plans(), st.integers(1, 20), st.data())
def test_with_a_fixed_global_batch_the_steps_are_the_same_at_any_world_size(
    plan: Plan, fixed: int, data: st.DataObject
) -> None:
    plan = replace(plan, fixed_global_batch=fixed, accumulate=1)
    possible = worlds(plan)
    if 1 not in possible:
        return
    alone: list[list[int]] = []
    position = Position()
    while not plan.done(position):
        alone += [global_batch(step) for step in steps_of(plan, position, 1)]
        for _ in range(plan.steps_left(position, 1)):
            position = plan.after(position, 1)
    together: list[list[int]] = []
    position = Position()
    while not plan.done(position):
        world = data.draw(st.sampled_from(possible))
        together.append(global_batch(steps_of(plan, position, world)[0]))
        assert plan.step(position, world).repeated == 0 or plan.tail == "pad"
        position = plan.after(position, world)
    assert together == alone


# -- the rules, one by one --------------------------------------------------------------------------------------------


def counts(plan: Plan, world: int, consumed: int = 0) -> list[int]:
    """How many records each step of an epoch takes."""
    position = Position(0, consumed)
    return [plan.step(position, world, ahead).count for ahead in range(plan.steps_left(position, world))]


def test_a_tail_is_a_step_of_smaller_batches() -> None:
    assert counts(Plan(25, 4), 2) == [8, 8, 9]
    assert counts(Plan(26, 4), 2) == [8, 8, 8, 2]
    assert counts(Plan(31, 4), 2) == [8, 8, 8, 7]


def test_a_tail_of_fewer_records_than_ranks_joins_the_step_before() -> None:
    plan = Plan(35, 4)
    assert counts(plan, 4) == [16, 19]
    assert [len(plan.step(Position(), 4, 1).share(rank)) for rank in range(4)] == [5, 5, 5, 4]


def test_a_tail_that_cannot_fill_every_micro_batch_joins_the_step_before() -> None:
    plan = Plan(35, 4, accumulate=2)
    assert counts(plan, 2) == [16, 19]
    assert [len(part) for part in plan.step(Position(), 2, 1).micro_batches(0)] == [5, 5]


def test_a_dataset_that_cannot_fill_every_micro_batch_has_fewer_of_them() -> None:
    step = Plan(5, 4, accumulate=4).step(Position(), 2)
    assert (step.count, step.accumulate) == (5, 2)


def test_a_dataset_of_one_record_is_one_step_for_one_rank() -> None:
    assert counts(Plan(1, 4), 1) == [1]
    with pytest.raises(WorldSizeRefused, match="1 records and the world 2 ranks"):
        Plan(1, 4).check(2)


def test_a_tail_that_the_largest_world_could_not_share_joins_the_step_before() -> None:
    assert counts(Plan(19, 8), 1) == [8, 8, 3]
    assert counts(Plan(19, 8, largest_world=4), 1) == [8, 11]


def test_no_batch_is_more_than_doubled_for_a_world_that_may_come() -> None:
    assert counts(Plan(9, 2, largest_world=100), 1) == [2, 2, 2, 3]


def test_a_world_that_grew_beyond_what_is_left_repeats_records_without_weight() -> None:
    plan = Plan(10, 4)
    step = plan.step(Position(0, 8), 5)
    assert [list(step.share(rank)) for rank in range(5)] == [[8], [9], [8], [9], [8]]
    assert [step.weight(rank) for rank in range(5)] == [2.5, 2.5, 0, 0, 0]
    assert (step.repeated, plan.repeated(Position(0, 8), 5)) == (3, 3)
    assert plan.after(Position(0, 8), 5) == Position(1, 0, 1)


def test_what_is_dropped_and_what_is_repeated_is_told() -> None:
    drop, pad = Plan(30, 4, tail="drop"), Plan(30, 4, tail="pad")
    assert (counts(drop, 2), drop.dropped(Position(), 2), drop.repeated(Position(), 2)) == ([8, 8, 8], 6, 0)
    assert (counts(pad, 2), pad.dropped(Position(), 2), pad.repeated(Position(), 2)) == ([8, 8, 8, 8], 0, 2)
    assert drop.dropped(Position(0, 20), 2) == 2
    assert drop.dropped(Position(1), 2) == 0
    order = pad.order(0)
    assert order.records(range(24, 32))[-2:] == order.records(range(2))


def test_dropping_goes_on_with_the_next_epoch_where_a_larger_world_has_no_whole_step_left() -> None:
    plan = Plan(30, 4, epochs=2, tail="drop")
    assert plan.settled(Position(0, 20, 5), 3) == Position(1, 0, 5)
    assert plan.settled(Position(0, 16, 5), 3) == Position(0, 16, 5)


def test_a_fixed_global_batch_computes_how_many_micro_batches_a_step_has() -> None:
    plan = Plan(100, 4, fixed_global_batch=24)
    assert {world: plan.step(Position(), world).accumulate for world in (1, 2, 3, 4, 6, 24)} == {
        1: 6, 2: 3, 3: 2, 4: 2, 6: 1, 24: 1,
    }  # fmt: skip


def test_a_tail_shorter_than_the_fixed_global_batch_joins_the_step_before_in_more_micro_batches() -> None:
    plan = Plan(100, 4, fixed_global_batch=24)
    for world in (1, 2, 3):
        assert counts(plan, world) == [24, 24, 24, 28]
    assert plan.step(Position(), 2, 3).accumulate == 4


def test_the_position_counts_commits_over_epochs() -> None:
    plan = Plan(10, 5, epochs=2)
    position = Position()
    passed = [position]
    while not plan.done(position):
        position = plan.after(position, 1)
        passed.append(position)
    assert passed == [Position(0, 0, 0), Position(0, 5, 1), Position(1, 0, 2), Position(1, 5, 3), Position(2, 0, 4)]


def test_after_the_last_epoch_there_is_no_step() -> None:
    plan = Plan(10, 5)
    assert (plan.steps_left(Position(1), 1), plan.micro_batches_left(Position(1), 1)) == (0, 0)
    for call in (plan.step, plan.after):
        with pytest.raises(SamplerMisused, match="0 steps left"):
            call(Position(1), 1)


def test_a_step_of_billions_of_records_costs_no_more() -> None:
    plan = Plan(2**60, 32, epochs=3)
    step = plan.step(Position(1, 2**59), 1000, 10**9)
    assert len(step.share(999)) == 32
    assert len(plan.order(1).records(step.share(999))) == 32


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"size": 0}, "size=0 .*an empty dataset"),
        ({"size": -1}, "size=-1 must be"),
        ({"batch": 0}, "batch_size=0"),
        ({"epochs": 0}, "epochs=0"),
        ({"accumulate": 0}, "accumulate=0"),
        ({"fixed_global_batch": 0}, "fixed_global_batch=0"),
        ({"fixed_global_batch": 8, "accumulate": 2}, "contradict"),
        ({"tail": "keep"}, "tail='keep' is unknown: use one of 'uneven', 'drop', 'pad'"),
        ({"seed": 2**63}, "seed="),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_in_words(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(BadSampler, match=words):
        Plan(**{"size": 10, "batch": 2, **arguments})  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("arguments", [{"size": [1, 2]}, {"size": True}, {"batch": 1.5}, {"shuffle": "yes"}])
def test_what_is_no_number_is_refused_in_words(arguments: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="must be"):
        Plan(**{"size": 10, "batch": 2, **arguments})  # type: ignore[arg-type]  # that is the point


def test_a_world_that_a_plan_cannot_feed_is_refused_in_words() -> None:
    with pytest.raises(WorldSizeRefused, match="3 records and the world 4 ranks"):
        Plan(3, 2).check(4)
    with pytest.raises(WorldSizeRefused, match="cannot be divided among 9 ranks: start at most 8"):
        Plan(100, 2, fixed_global_batch=8).check(9)
    with pytest.raises(WorldSizeRefused, match="would drop everything: the dataset has 10 records"):
        Plan(10, 4, tail="drop").check(3)
    with pytest.raises(WorldSizeRefused, match="0 ranks"):
        Plan(10, 4).check(0)


def test_a_state_goes_on_with_another_batch_size_and_more_epochs() -> None:
    state = Plan(10, 2).state(Position(0, 4, 2))
    assert Plan(10, 5, epochs=7, tail="drop", accumulate=2).restored(state) == Position(0, 4, 2)


def test_a_position_in_a_checkpoint_of_version_0_1_is_read_and_leads_to_the_same_records() -> None:
    """The promise of docs/compatibility.md: what stands here is never changed. A key of a later version is ignored."""
    written = {"version": 1, "size": 10, "shuffle": True, "seed": 3, "epoch": 1, "consumed": 4, "step": 7, "new": 1}
    plan = Plan(10, 2, epochs=2, seed=3)
    position = plan.restored(written)
    assert position == Position(1, 4, 7)
    assert plan.order(1).records(range(4, 10)) == [6, 0, 2, 4, 9, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": 11}, "another dataset or order: its sampler has size=11, and this one size=10"),
        ({"seed": 1}, "seed=1, and this one seed=0"),
        ({"shuffle": False}, "shuffle=False, and this one shuffle=True"),
        ({"version": 2}, "version 2, and this elastic-run reads 1"),
        ({"version": None}, "version None"),
        ({"consumed": 11}, "damaged: record 11 of 10"),
        ({"epoch": -1}, "damaged"),
        ({"step": "3"}, "step is '3'"),
    ],
)
def test_a_state_of_something_else_is_refused_in_words(change: dict[str, object], words: str) -> None:
    plan = Plan(10, 2)
    with pytest.raises(BadSamplerState, match=words):
        plan.restored({**plan.state(Position()), **change})


def test_the_seed_of_what_is_not_shuffled_does_not_matter() -> None:
    state = Plan(10, 2, shuffle=False, seed=1).state(Position(0, 4, 2))
    assert Plan(10, 2, shuffle=False, seed=2).restored(state) == Position(0, 4, 2)


def test_ranks_that_agree_have_no_disagreement() -> None:
    assert disagreement([Plan(10, 2).claim(Position(0, 4, 2))] * 3) == ""


@pytest.mark.parametrize(
    ("plan", "position", "words"),
    [
        (Plan(11, 2), Position(), "size is 10 on ranks 0-1, 3 and 11 on rank 2"),
        (Plan(10, 3), Position(), "batch_size is 2 on ranks 0-1, 3 and 3 on rank 2"),
        (Plan(10, 2, epochs=2), Position(), "epochs is 1 on"),
        (Plan(10, 2, tail="drop"), Position(), "tail is 'uneven' on ranks 0-1, 3 and 'drop' on rank 2"),
        (Plan(10, 2, accumulate=2), Position(), "accumulate is 1"),
        (Plan(10, 2, fixed_global_batch=8), Position(), "fixed_global_batch is None on ranks 0-1, 3 and 8 on rank 2"),
        (Plan(10, 2, shuffle=False), Position(), "shuffle is True on ranks 0-1, 3 and False on rank 2"),
        (Plan(10, 2, seed=-7), Position(), "seed is 0 on ranks 0-1, 3 and -7 on rank 2"),
        (Plan(10, 2), Position(1), "the epoch is 0 on ranks 0-1, 3 and 1 on rank 2.*load the same checkpoint"),
        (Plan(10, 2), Position(0, 2), "the record of the epoch is 0"),
        (Plan(10, 2), Position(0, 0, 5), "the step is 0"),
    ],
)
def test_a_rank_that_differs_is_named_with_the_field_and_the_values(plan: Plan, position: Position, words: str) -> None:
    usual = Plan(10, 2).claim(Position())
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(disagreement([usual, usual, plan.claim(position), usual]))
