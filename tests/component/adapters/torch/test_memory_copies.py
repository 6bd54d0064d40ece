"""`Checkpoint(memory=...)` of one worker at a time, beside an agent's real sockets."""

import asyncio
import contextlib
import mmap
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from elastic_run.adapters.client import checkpoints  # noqa: E402
from elastic_run.adapters.client.channel import AgentGone, Back, Call  # noqa: E402
from elastic_run.adapters.client.memory_channel import take_memory  # noqa: E402
from elastic_run.adapters.torch import memory_copies, memory_slots  # noqa: E402
from elastic_run.adapters.torch.memory_slots import sum_blocks  # noqa: E402
from elastic_run.elastic_agent.worker_server import WorkerServer  # noqa: E402
from elastic_run.exceptions import BadCheckpoint  # noqa: E402
from elastic_run.torch import Checkpoint  # noqa: E402


class Value:
    """A part whose state is whatever it holds."""

    def __init__(self, value: Any = 0) -> None:
        self.value = value

    def state_dict(self) -> Any:
        return {"value": self.value}

    def load_state_dict(self, state_dict: Any) -> None:
        self.value = state_dict["value"]


class SilentSteps:
    """Tells no agent: that connection ends with a worker's process, and here is none."""

    def committed(self) -> None:
        pass


class Job:
    """An agent, and one worker after the other, each of which has the same file."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self._set = monkeypatch.setenv

        async def respond(call: Call) -> Back:
            return Back(current=True, run="a") if call.kind == "current" else Back()

        self.server = WorkerServer(respond, {}, lambda _: None)

    async def begin_round(self, round: int) -> None:
        self._set("ELASTIC_RUN_ROUND", str(round))
        self._set("ELASTIC_RUN_AGENT", self.server.address)

    def checkpoint(self, every: int | None = None, memory: int = 1, **parts: Any) -> Checkpoint:
        return Checkpoint(self.path, every=every, memory=memory, **parts)

    async def commit(self, *values: Any, round: int = 1, **options: Any) -> Checkpoint:
        """A worker that commits these values, one in each step, and is lost."""
        await self.begin_round(round)
        part = Value()
        checkpoint = self.checkpoint(part=part, **options)

        def run() -> None:
            checkpoint.restore()
            for part.value in values:
                checkpoint.commit()

        await asyncio.to_thread(run)
        return checkpoint

    async def restored(self, round: int = 9, **options: Any) -> tuple[int, Any]:
        """What the next worker has: a step, and its value."""
        await self.begin_round(round)
        part = Value("none")
        checkpoint = self.checkpoint(part=part, **options)
        await asyncio.to_thread(checkpoint.restore)
        return checkpoint.step, part.value

    async def damage(self, step: int) -> None:
        """Changes a byte of the tensors of that step."""
        for buffer in await self.buffers():
            found = memory_copies.read_generation(buffer)
            if found and found.step == step:
                buffer[70:71] = bytes([buffer[70] ^ 8])
                return
        raise AssertionError("no such step is there")

    async def buffers(self) -> list[Any]:
        copies = memory_copies.MemoryCopies(str(self.path), self.server.address)
        await asyncio.to_thread(copies.slots.map_held)
        return [*copies.slots.buffers.values()]


@pytest.fixture
async def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Job]:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(checkpoints, "Steps", SilentSteps)
    found = Job(tmp_path / "run.pt", monkeypatch)
    await found.server.start()
    yield found
    await found.server.close()


def numbers(value: float) -> Any:
    return torch.full((100,), value)


async def test_the_last_commit_is_there_though_no_file_was_written(job: Job) -> None:
    await job.commit(numbers(1), numbers(2), numbers(3))
    step, value = await job.restored()
    assert step == 3
    assert value.equal(numbers(3))
    assert not job.path.exists()


async def test_every_kind_of_tensor_and_plain_value_comes_back(job: Job) -> None:
    kinds = [kind for kind in vars(torch).values() if isinstance(kind, torch.dtype) and not kind.is_complex]
    tensors: dict[str, Any] = {
        "none": torch.empty(0, 3),
        "number": torch.tensor(2.5),
        "not contiguous": torch.arange(12.0).reshape(3, 4).t(),
        "conjugate": torch.tensor([1 + 2j]).conj(),
    }
    for kind in kinds:
        try:
            tensors[str(kind)] = torch.tensor([0, 1, 1], dtype=torch.uint8).to(kind)
            tensors[str(kind)].clone()
        except (RuntimeError, TypeError, NotImplementedError):  # kinds that hold no numbers
            tensors.pop(str(kind), None)
    plain = {"lr": 0.1, 3: [True, None, ("text", -(2**70))]}
    await job.commit([tensors, plain])
    _, (found, others) = await job.restored()
    assert len(found) > 12
    assert others == plain
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert bytes(found[name].reshape(-1).contiguous().view(torch.uint8).tolist()) == bytes(
            tensor.resolve_conj().reshape(-1).contiguous().view(torch.uint8).tolist()
        ), name


async def test_the_model_and_the_optimizer_are_of_one_step_and_do_not_lie_in_that_memory(job: Job) -> None:
    await job.begin_round(1)

    def parts() -> tuple[Any, Any, Checkpoint]:
        model = torch.nn.Linear(3, 3)
        optimizer = torch.optim.Adam(model.parameters())
        return model, optimizer, job.checkpoint(model=model, optimizer=optimizer)

    def train(model: Any, optimizer: Any, checkpoint: Checkpoint, steps: int, commits: bool = True) -> None:
        for _ in range(steps):
            model.weight.grad = torch.ones(3, 3)
            model.bias.grad = torch.ones(3)
            optimizer.step()
            if commits:
                checkpoint.commit()

    model, optimizer, checkpoint = parts()
    await asyncio.to_thread(train, model, optimizer, checkpoint, 3)
    await job.begin_round(2)
    other, other_optimizer, restored = parts()
    assert await asyncio.to_thread(restored.restore)
    assert other.weight.equal(model.weight)
    for one in (model, other):
        await asyncio.to_thread(train, one, optimizer if one is model else other_optimizer, restored, 2, False)
    assert other.weight.equal(model.weight), "the optimizer's state is of the same step"
    again, _, third = parts()
    assert await asyncio.to_thread(third.restore)
    assert third.step == 3
    assert not again.weight.equal(model.weight), "training on has not changed what is held"


async def test_no_step_takes_new_memory_and_a_state_that_grows_does_once(job: Job) -> None:
    async def inodes() -> set[int]:
        found = await asyncio.to_thread(take_memory, job.server.address, str(job.path))
        try:
            return {os.fstat(each).st_ino for each in found.values()}
        finally:
            for each in found.values():
                os.close(each)

    await job.commit(numbers(1), numbers(2))
    before = await inodes()
    assert len(before) == 2
    await job.commit(*map(numbers, range(5)), round=2)
    assert await inodes() == before, "the next worker writes into the same two"
    await job.commit(torch.zeros(100_000), torch.ones(100_000), round=3)
    after = await inodes()
    assert len(after) == 2
    assert not after & before
    assert (await job.restored())[0] == 9


async def test_a_damaged_generation_is_told_of_and_the_older_one_and_then_the_file_are_taken(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    await job.commit(*map(numbers, (1, 2, 3, 4, 5)), every=3)
    await job.damage(5)
    step, value = await job.restored()
    assert (step, value[0]) == (4, 4)
    assert "memory of step 5 on node 0 is damaged: it is not used" in capsys.readouterr().err
    await job.damage(4)
    step, value = await job.restored()
    assert (step, value[0]) == (3, 3)
    assert "memory of step 4 on node 0 is damaged" in capsys.readouterr().err


async def test_the_generation_that_is_whole_is_not_overwritten_where_the_newer_one_was_damaged(job: Job) -> None:
    await job.commit(*map(numbers, (1, 2, 3)))
    await job.damage(3)
    await job.commit(numbers(33), round=2)
    held = [memory_copies.read_generation(each) for each in await job.buffers()]
    assert sorted(each.step for each in held if each) == [2, 3]
    step, value = await job.restored()
    assert (step, value[0]) == (3, 33)


async def test_a_file_that_is_newer_is_taken_and_an_older_one_is_not(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    await job.commit(*map(numbers, (1, 2, 3)), every=2)
    assert (await job.restored())[0] == 3
    assert "going on after step 3, from memory (the file has step 2)" in capsys.readouterr().err
    await job.commit(*map(numbers, (4, 5)), every=2, memory=100, round=2)
    step, value = await job.restored()
    assert (step, value[0]) == (4, 4), "the file has it, and no memory"


async def test_steps_to_the_next_file_count_from_the_last_file(job: Job) -> None:
    await job.commit(*map(numbers, (1, 2, 3)), every=2)
    checkpoint = await job.commit(numbers(4), every=2, round=2)
    assert checkpoint.step == 4
    assert torch.load(job.path, weights_only=True)["step"] == 4


async def test_a_file_without_memory_is_read_and_is_as_before(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    part = Value(numbers(7))
    old = Checkpoint(job.path, every=1, part=part)
    await asyncio.to_thread(old.commit)
    assert torch.load(job.path, weights_only=True).keys() == {"format", "version", "step", "parts"}
    step, value = await job.restored()
    assert (step, value[0]) == (1, 7)


async def test_the_file_is_written_by_the_clock_too(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("elastic_run.adapters.torch.checkpoint.time.monotonic", lambda: now[0])
    await job.begin_round(1)
    checkpoint = Checkpoint(job.path, memory=1, persist_every=60.0, part=Value())
    saved: list[bool] = []

    def run() -> None:
        for now[0] in (159.0, 160.0, 219.0, 221.0):
            saved.append(checkpoint.commit())

    await asyncio.to_thread(run)
    assert saved == [False, True, False, True]


async def test_with_auto_copies_become_rarer_until_they_take_their_share(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, copied = [100.0], list[int]()
    monkeypatch.setattr("elastic_run.adapters.torch.checkpoint.time.monotonic", lambda: now[0])
    await job.begin_round(1)

    class Slow(Value):
        def state_dict(self) -> Any:
            now[0] += 0.3
            copied.append(checkpoint.step)
            return super().state_dict()

    checkpoint = Checkpoint(job.path, memory="auto", part=Slow())

    def run() -> None:
        for _ in range(40):
            now[0] += 1.0
            checkpoint.commit()

    await asyncio.to_thread(run)
    assert copied == [1, 2, 4, 8, 16, 26, 36]
    await job.begin_round(2)
    await asyncio.to_thread(checkpoint.commit)
    assert copied[-1] == 41, "a worker that keeps its process copies the first step, as those that are new do"


async def test_steps_that_were_given_up_in_the_same_process_do_not_come_back(job: Job) -> None:
    await job.commit(*map(numbers, (1, 2, 3, 4)))
    part = Value()
    begun_anew = job.checkpoint(part=part)  # and does not restore

    def run() -> None:
        for part.value in (numbers(10), numbers(20)):
            begun_anew.commit()

    await asyncio.to_thread(run)
    step, value = await job.restored()
    assert (step, value[0]) == (2, 20)


def count_memories() -> int:
    """Descriptors of this process for memory of that kind; those of an earlier test may be closed meanwhile."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += "memfd:elastic-run" in str(each.readlink())
    return found


async def test_what_the_agent_was_not_given_is_made_again(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    await job.begin_round(1)
    part = Value()
    checkpoint = job.checkpoint(part=part)
    give, failed, descriptors = memory_slots.give_memory, list[int](), count_memories()

    def fail_once(*given: Any) -> None:
        if not failed:
            failed.append(given[-1])
            raise AgentGone("its agent is busy")
        give(*given)

    monkeypatch.setattr(memory_slots, "give_memory", fail_once)

    def run() -> None:
        with pytest.raises(AgentGone):
            checkpoint.commit()
        assert count_memories() <= descriptors
        for part.value in (1, 2, 3):
            checkpoint.commit()

    await asyncio.to_thread(run)
    assert len(await job.buffers()) == 2
    assert (await job.restored())[1] == 3


async def test_a_memory_that_cannot_be_mapped_leaves_no_descriptor_open(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    await job.commit(1, 2)

    def refuse(*_: object) -> Any:
        raise OSError("no room")

    before = count_memories()
    monkeypatch.setattr(memory_slots, "mmap", refuse)
    with pytest.raises(OSError, match="no room"):
        await job.buffers()
    assert count_memories() <= before


async def test_a_node_that_was_sent_the_state_holds_it_before_the_next_copy(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    await job.commit(numbers(1), numbers(2))
    taken = {found.step: buffer for buffer in await job.buffers() if (found := memory_copies.read_generation(buffer))}
    held, sent = memory_copies.read_generation(taken[2]), bytes(taken[2])
    assert held is not None
    await job.begin_round(2)
    row = memory_copies.RankRow(memory_copies.SavedFile(), memory_copies._held(held), memory_copies.HeldGeneration())
    other = [*row.numbers, 0]  # of which no rank has pieces

    def gather(values: list[int]) -> list[list[int]]:
        return [values, other if len(values) > 1 else [1]]  # of a rank on node 1, whose state is whole

    def receive(buffer: bytearray, size: int, *_: Any, **__: Any) -> None:
        buffer[:size] = sent[:size]

    monkeypatch.setattr(memory_copies, "gather_rows", gather)
    monkeypatch.setattr(memory_copies, "broadcast_bytes", receive)
    path = str(job.path) + "-on-a-new-node"
    copies = memory_copies.MemoryCopies(path, job.server.address)
    found = await asyncio.to_thread(copies.restore, memory_copies.SavedFile())
    assert found is not None
    assert found.step == 2
    [descriptor] = (await asyncio.to_thread(take_memory, job.server.address, path)).values()
    with mmap.mmap(descriptor, os.fstat(descriptor).st_size) as memory:
        os.close(descriptor)
        assert memory_copies.read_generation(memory) == held
    assert copies.slots.newest is not None
    assert copies.slots.choose_slot() != copies.slots.newest


async def test_what_was_restored_is_not_what_is_written_next(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    await job.commit(numbers(1), numbers(2))
    await job.begin_round(2)
    copies = memory_copies.MemoryCopies(str(job.path), job.server.address)
    monkeypatch.setattr(memory_copies, "order_candidates", lambda rows: rows[0].generations[:1])  # the older one
    found = await asyncio.to_thread(copies.restore, memory_copies.SavedFile())
    assert found is not None
    assert found.step == 1
    assert copies.slots.steps[copies.slots.newest or 0] == (1, 1)


async def test_a_path_from_elsewhere_names_the_same_memory(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    await job.commit(numbers(5))
    monkeypatch.chdir(job.path.parent)
    job.path = Path("..") / job.path.parent.name / "run.pt"
    assert (await job.restored())[0] == 1


async def test_what_does_not_fit_beside_it_is_refused_in_words(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_slots, "free_memory", lambda: 1_000_000)
    with pytest.raises(
        BadCheckpoint, match=r"2 generations of 0\.9 MB on each node, and this node, .* has 1\.0 MB left"
    ):
        await job.commit(torch.zeros(200_000))
    await job.commit(torch.zeros(100_000))


@pytest.mark.parametrize("options", [{"every": 100}, {"persist_every": 600.0}], ids=str)
async def test_a_file_of_a_model_in_pieces_is_refused_at_the_first_commit(
    job: Job, monkeypatch: pytest.MonkeyPatch, options: Any
) -> None:
    await job.begin_round(1)
    monkeypatch.setattr("elastic_run.adapters.torch.checkpoint.is_in_pieces", lambda _: True)
    checkpoint = Checkpoint(job.path, memory=1, part=Value(), **options)
    with pytest.raises(BadCheckpoint, match=r"leave (every|persist_every)=\.\.\. and save\(\) out"):
        await asyncio.to_thread(checkpoint.commit)


async def test_a_part_that_only_pickle_could_carry_is_refused_in_words(job: Job) -> None:
    with pytest.raises(BadCheckpoint, match=r"memory=\.\.\. cannot keep a part: part\['value'\] is a builtins"):
        await job.commit(object())


async def test_other_parts_are_refused_in_words(job: Job) -> None:
    await job.commit(1)
    checkpoint = job.checkpoint(other=Value())
    with pytest.raises(BadCheckpoint, match="has the parts part, and not other"):
        await asyncio.to_thread(checkpoint.restore)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"memory": 0}, "memory=0 must be a number of steps from 1"),
        ({"memory": 1, "every": 0}, "every=0 must be a number of steps from 1"),
        ({"every": 1, "persist_every": 3.0}, "goes with memory="),
        ({"memory": 1, "persist_every": 0.0}, "a number of seconds above 0"),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused(tmp_path: Path, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Checkpoint(tmp_path / "run.pt", part=Value(), **arguments)


def test_without_every_and_without_memory_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="every=None must be a whole number of steps"):
        Checkpoint(tmp_path / "run.pt", part=Value())


def test_without_a_launcher_one_line_says_once_that_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "ELASTIC_RUN_AGENT", "ELASTIC_RUN_ROUND"):
        monkeypatch.delenv(name, raising=False)
    checkpoint = Checkpoint(tmp_path / "run.pt", every=2, memory=1, part=Value())
    assert not checkpoint.restore()
    assert [checkpoint.commit() for _ in range(4)] == [False, True, False, True]
    assert capsys.readouterr().err.count("keeps nothing in memory") == 1


@pytest.mark.parametrize("change", ["a bit", "two blocks that changed places", "the end"])
def test_the_checksum_finds(change: str) -> None:
    data = bytearray(os.urandom(64 * 1024 * 3 + 64))
    before = sum_blocks(memoryview(data))
    block = 64 * 1024
    match change:
        case "a bit":
            data[100_000] ^= 1
        case "the end":
            data[-1] ^= 128
        case _:
            data[:block], data[block : 2 * block] = data[block : 2 * block], data[:block]
    assert sum_blocks(memoryview(data)) != before
