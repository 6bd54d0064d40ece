"""Does a number of workers that changes disturb the training? Measured with real jobs, and drawn.

    python examples/convergence.py            # some minutes on two cores: the table, and docs/pictures/convergence.svg

The file has two halves. The first is an elastic training script, as you would write your own. It knows nothing of the
experiment, and any launcher starts it:

    elastic-run --nnodes=1:4 examples/convergence.py train --checkpoint /tmp/digits.pt --fixed-global-batch 32

What makes it elastic is in `train_epoch` and `load`: `weights` makes the gradient the mean over all records of the
step, `commit` says that they are in the model, and the sampler's `state_dict` lies in the same checkpoint as the model.

The second half starts such jobs with four workers, with two, and with a number that changes, and compares the curves.
"""

# Half of torch's functions, and all of scikit-learn's, have no types.
# pyright: basic

import argparse
import asyncio
import itertools
import json
import os
import re
import socket
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import elastic_run
from elastic_run.torch import ElasticBatchSampler

# -- the training script ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    """One place of a curve.

    Attributes:
        records: trained on so far, over all epochs and ranks.
        loss: mean cross entropy on the test records.
        accuracy: on them, from 0 to 1.
        world: ranks that trained here.
    """

    records: int
    loss: float
    accuracy: float
    world: int


@dataclass(slots=True)
class Training:
    """One model, and all else that goes with it into a checkpoint. The script trains one for each seed."""

    seed: int
    model: DistributedDataParallel
    optimizer: torch.optim.Optimizer
    sampler: ElasticBatchSampler
    loader: "DataLoader[tuple[Tensor, ...]]"
    curve: list[Point] = field(default_factory=list[Point])

    def state(self) -> dict[str, Any]:
        """What the next round continues from: model and position together, or the one is not of the other."""
        return {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sampler": self.sampler.state_dict(),
            "curve": [(point.records, point.loss, point.accuracy, point.world) for point in self.curve],
        }

    def load(self, state: dict[str, Any]) -> None:
        rates: list[float] = [group["lr"] for group in self.optimizer.param_groups]
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        # It has brought the learning rate of the world that wrote the checkpoint; this world has its own.
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self.sampler.load_state_dict(state["sampler"])
        self.curve = [Point(*point) for point in state["curve"]]

    @property
    def records(self) -> int:
        """Trained on so far: all epochs that are done, and a part of the one that is not."""
        position = self.sampler.state_dict()
        return position["epoch"] * position["size"] + position["consumed"]


def add_training_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="a model is trained for each")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=8, help="records per rank and batch")
    parser.add_argument("--fixed-global-batch", type=int, help="records per step of all ranks, at any world size")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument(
        "--lr-for-ranks", type=int, help="--lr is meant for so many; in proportion for any other number"
    )
    parser.add_argument("--save-every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--test-every", type=int, default=240, help="records between two points of the curve")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="pretend that a step takes at least this long")
    parser.add_argument("--log", type=Path, help="a folder in which each rank writes which records it trained on")


def digits() -> tuple[TensorDataset, Tensor, Tensor]:
    """1,797 pictures of 8 x 8 pixels. Each fifth is to test with; the rest comes with its index, for the log."""
    from sklearn.datasets import load_digits  # only workers need it, and it takes a second

    data: Any = load_digits()  # Any: a bunch of arrays, or two of them
    pixels = torch.tensor(data.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(data.target, dtype=torch.int64)
    test = torch.arange(len(labels)) % 5 == 0
    index = torch.arange(int((~test).sum()))
    return TensorDataset(index, pixels[~test], labels[~test]), pixels[test], labels[test]


def prepare(options: argparse.Namespace, records: TensorDataset, seed: int) -> Training:
    torch.manual_seed(seed)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    rate = options.lr * (dist.get_world_size() / options.lr_for_ranks if options.lr_for_ranks else 1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    sampler = ElasticBatchSampler(
        len(records),
        options.batch_size,
        epochs=options.epochs,
        seed=seed,
        fixed_global_batch=options.fixed_global_batch,
    )
    return Training(seed, model, optimizer, sampler, DataLoader(records, batch_sampler=sampler))


def train_epoch(training: Training) -> Iterator[list[int]]:
    """Trains to the end of the epoch; after each step, the records that this rank had in it."""
    model, optimizer, sampler = training.model, training.optimizer, training.sampler
    used: list[int] = []
    drawn = 0  # batches of this step; with a fixed global batch, their number follows from the world size
    for index, pixels, labels in training.loader:
        last = drawn + 1 == sampler.accumulate
        among_ranks: AbstractContextManager[None] = nullcontext() if last else model.no_sync()
        with among_ranks:
            # Batches may differ in size. With its weight, each record counts the same, whichever rank has it.
            loss = cross_entropy(model(pixels), labels) * sampler.weights[drawn]
            loss.backward()
        used += index.tolist()
        drawn += 1
        if last:
            optimizer.step()
            optimizer.zero_grad()
            sampler.commit()  # after the step, and before anything is saved
            yield used
            used, drawn = [], 0


def test(training: Training, pixels: Tensor, labels: Tensor) -> Point:
    with torch.no_grad():
        guess = training.model.module(pixels)
        right = (guess.argmax(dim=1) == labels).float().mean().item()
        return Point(training.records, cross_entropy(guess, labels).item(), right, dist.get_world_size())


def save(path: Path, trainings: Sequence[Training]) -> None:
    """Rank 0 writes the checkpoint; the rename makes it whole or absent."""
    if dist.get_rank() == 0:
        part = path.with_suffix(f".{os.getpid()}.part")
        torch.save({training.seed: training.state() for training in trainings}, part)
        part.rename(path)


def write_log(folder: Path, training: Training, records: Sequence[int]) -> None:
    world = elastic_run.context()
    entry = {"seed": training.seed, "step": training.sampler.step, "world": world.world_size, "records": records}
    with (folder / f"round-{world.round}-rank-{world.rank}.jsonl").open("a") as log:
        log.write(json.dumps(entry) + "\n")


def train(options: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    leads, world = dist.get_rank() == 0, dist.get_world_size()
    records, test_pixels, test_labels = digits()
    trainings = [prepare(options, records, seed) for seed in options.seeds]
    if options.checkpoint.exists():
        states = torch.load(options.checkpoint, weights_only=True)
        for training in trainings:
            training.load(states[training.seed])  # on every rank
    elif leads:
        for training in trainings:
            training.curve.append(test(training, test_pixels, test_labels))

    for epoch in range(options.epochs):
        for training in trainings:
            if training.sampler.epoch > epoch:
                continue  # the checkpoint has this one
            before, began = training.records, time.monotonic()
            for used in train_epoch(training):
                if options.log:
                    write_log(options.log, training, used)
                if leads and training.records // options.test_every > before // options.test_every:
                    training.curve.append(test(training, test_pixels, test_labels))
                before = training.records
                if training.sampler.step % options.save_every == 0:
                    save(options.checkpoint, trainings)
                time.sleep(max(0.0, options.step_seconds - (time.monotonic() - began)))
                began = time.monotonic()
            if leads:
                print(f"epoch {epoch + 1}/{options.epochs} of seed {training.seed}: {world} ranks", flush=True)

    if leads:
        for training in trainings:
            training.curve.append(test(training, test_pixels, test_labels))
            print(f"seed {training.seed}: {100 * training.curve[-1].accuracy:.1f} % of unseen digits", flush=True)
    save(options.checkpoint, trainings)
    dist.destroy_process_group()


# -- the experiment: real jobs ----------------------------------------------------------------------------------------

SEEDS = (0, 1, 2)
EPOCHS = 8
PATIENCE = 120.0
"""Seconds that any single expectation may take on a slow machine before the experiment gives up with a reason."""

FOUR, TWO, CHANGING = "4 workers", "2 workers", "2, 4, 3 workers"
HOW_MANY = (FOUR, TWO, CHANGING)
SAME_RATE = "8 records per rank, same learning rate"
SCALED_RATE = "8 records per rank, learning rate x ranks"
FIXED = "32 records per step (fixed_global_batch)"
CASES = {
    SAME_RATE: ["--batch-size=8", "--lr=0.05"],
    SCALED_RATE: ["--batch-size=8", "--lr=0.05", "--lr-for-ranks=4"],
    FIXED: ["--batch-size=8", "--lr=0.05", "--fixed-global-batch=32"],
}

Curves = dict[int, list[Point]]
"""Of each seed."""


class Job:
    """One elastic-run job on this machine, with any number of agents ("machines")."""

    def __init__(self, flags: Sequence[str], arguments: Sequence[str]) -> None:
        self._command = [sys.executable, "-m", "elastic_run", *flags, __file__, "train", *arguments]
        self._agents: dict[str, tuple[Process, asyncio.Task[None]]] = {}
        self._killed: set[str] = set()
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._output: list[str] = []

    async def start(self, *names: str) -> None:
        for name in names:
            command = [*self._command]
            command.insert(3, f"--node-name={name}")
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            agent = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, env=environment
            )
            self._agents[name] = agent, asyncio.create_task(self._read(name, agent))

    async def _read(self, name: str, agent: Process) -> None:
        assert agent.stdout
        async for line in agent.stdout:
            text = f"{name} | {line.decode(errors='replace').rstrip()}"
            self._output.append(text)
            self._lines.put_nowait(text)

    async def line(self, pattern: str) -> None:
        """Waits for a line that matches, among those not yet looked at."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not re.search(pattern, await self._lines.get()):
                    pass
        except TimeoutError:
            raise self.failure(f"no line like {pattern!r} came within {PATIENCE:.0f} s") from None

    def kill(self, name: str) -> None:
        """Ends an agent by SIGKILL; its guardian ends its workers, and the job continues without it."""
        self._killed.add(name)
        self._agents[name][0].kill()

    async def ended(self) -> None:
        """Waits until all that were not killed have ended. Raises SystemExit where one did not end well."""
        try:
            async with asyncio.timeout(PATIENCE):
                codes = {name: await agent.wait() for name, (agent, _) in self._agents.items()}
                await asyncio.gather(*(reader for _, reader in self._agents.values()))
        except TimeoutError:
            raise self.failure(f"the job did not end within {PATIENCE:.0f} s") from None
        if any(code for name, code in codes.items() if name not in self._killed):
            raise self.failure(f"the agents ended with {codes}")

    def failure(self, why: str) -> SystemExit:
        for agent, _ in self._agents.values():
            if agent.returncode is None:
                agent.terminate()
        return SystemExit("\n".join([*self._output[-40:], f"the experiment gives up: {why}"]))


async def measure(how_many: str, arguments: Sequence[str], checkpoint: Path, endpoint: str) -> Curves:
    """Trains a model for each seed in one job."""
    common = [f"--checkpoint={checkpoint}", f"--epochs={EPOCHS}", "--seeds", *map(str, SEEDS)]
    if how_many == CHANGING:
        # Steps of at least 6 ms, so that the agents that arrive find something left to do.
        job = Job(
            ["--nnodes=2:4", f"--rdzv-endpoint={endpoint}", f"--rdzv-id={checkpoint.stem}",
             "--rdzv-conf=settle=0.5,scale_up_interval=1,last_call_timeout=1", f"--log-dir={checkpoint.parent}"],
            [*arguments, "--step-seconds=0.006", *common],
        )  # fmt: skip
        await job.start("A", "B")
        await job.line(r"epoch 2/.*: 2 ranks")
        await job.start("C", "D")
        for _ in range(2):  # epochs; the first may have been begun by two
            await job.line(rf"of seed {SEEDS[-1]}: 4 ranks")
        job.kill("D")
    else:
        job = Job(["--standalone", f"--nproc-per-node={how_many[0]}"], [*arguments, *common])
        await job.start("A")
    await job.ended()
    states: dict[int, dict[str, Any]] = torch.load(checkpoint, weights_only=True)
    curves = {seed: [Point(*point) for point in state["curve"]] for seed, state in states.items()}
    wanted = {int(number) for number in re.findall(r"\d", how_many)}
    for seed, curve in curves.items():
        if (found := {point.world for point in curve}) != wanted:
            raise job.failure(f"seed {seed} was trained by {found} ranks and not by {wanted}: a change came too late")
    return curves


# -- the experiment: what is compared ---------------------------------------------------------------------------------

GRID = 400
"""Places at which two curves are compared."""


def at(curve: Sequence[Point], records: float, what: str) -> float:
    """The curve's value there, on the straight line between its points."""
    for left, right in itertools.pairwise(curve):
        if left.records <= records <= right.records and left.records < right.records:
            share = (records - left.records) / (right.records - left.records)
            return (1 - share) * getattr(left, what) + share * getattr(right, what)
    return getattr(curve[-1], what)


def area(one: Sequence[Point], other: Sequence[Point], what: str) -> float:
    """The area between two curves, divided by their length: how far apart they are on average."""
    end = min(one[-1].records, other[-1].records)
    places = [end * index / GRID for index in range(GRID + 1)]
    return sum(abs(at(one, place, what) - at(other, place, what)) for place in places) / len(places)


def last(one: Sequence[Point], other: Sequence[Point], what: str) -> float:
    """How far apart they end."""
    return abs(getattr(one[-1], what) - getattr(other[-1], what))


def mean_and_most(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.2g} ({max(values):.2g})"


def tables(found: dict[str, dict[str, Curves]]) -> Iterator[str]:
    """Markdown: where the curves end, and how far apart they are."""
    yield "| | workers | final accuracy, %: mean (least - most) | final loss: mean (least - most) |"
    yield "|---|---|---|---|"
    for case, by_number in found.items():
        for how_many, curves in by_number.items():
            right = [100 * curve[-1].accuracy for curve in curves.values()]
            loss = [curve[-1].loss for curve in curves.values()]
            yield (
                f"| {case} | {how_many} | {sum(right) / len(right):.1f} ({min(right):.1f} - {max(right):.1f}) "
                f"| {sum(loss) / len(loss):.4f} ({min(loss):.4f} - {max(loss):.4f}) |"
            )
    yield ""
    yield "| | compared | accuracy, points: final | accuracy, points: area | loss: final | loss: area |"
    yield "|---|---|---|---|---|---|"
    for case, by_number in found.items():
        four = by_number[FOUR]
        pairs = {"two seeds, 4 workers": [(four[one], four[other]) for one, other in itertools.combinations(SEEDS, 2)]}
        for how_many in (TWO, CHANGING):
            pairs[f"4 or {how_many}, same seed"] = [(four[seed], by_number[how_many][seed]) for seed in SEEDS]
        for name, compared in pairs.items():
            cells = [
                mean_and_most([scale * apart(one, other, what) for one, other in compared])
                for what, scale in (("accuracy", 100.0), ("loss", 1.0))
                for apart in (last, area)
            ]
            yield f"| {case} | {name} | {' | '.join(cells)} |"


# -- the experiment: the picture --------------------------------------------------------------------------------------

COLOURS = {FOUR: "#1f77b4", TWO: "#d95f02", CHANGING: "#2ca02c"}
WIDTH, HEIGHT, MARGIN = 300, 200, 56
"""Of one panel, and around it, in pixels."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A place in the picture, and what it shows there.

    Attributes:
        x, y: its upper left corner, in pixels.
        what: the attribute of a point that is drawn.
        low, high: the least and the greatest value that is shown; what lies beyond is cut off.
        records: at its right end.
    """

    x: int
    y: int
    what: str
    low: float
    high: float
    records: int

    def place(self, point: Point) -> tuple[float, float]:
        value = getattr(point, self.what)
        across = self.x + WIDTH * point.records / self.records
        return across, self.y + HEIGHT * (self.high - value) / (self.high - self.low)

    @property
    def clip(self) -> str:
        """The name of what cuts off the lines at its frame."""
        return f"panel-{self.x}-{self.y}"

    def frame(self, title: str, label: str, ticks: Sequence[float], unit: str) -> Iterator[str]:
        inside = f'<rect x="{self.x}" y="{self.y}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>'
        yield f'<clipPath id="{self.clip}">{inside}</clipPath>{inside}'
        yield f'<text x="{self.x}" y="{self.y - 8}" font-weight="bold">{title}</text>'
        for tick in ticks:
            height = self.y + HEIGHT * (self.high - tick) / (self.high - self.low)
            text = f"{100 * tick:.0f}{unit}" if unit else f"{tick:g}"
            yield f'<path d="M{self.x},{height:.1f}h{WIDTH}" stroke="#ddd"/>'
            yield f'<text x="{self.x - 6}" y="{height + 4:.1f}" text-anchor="end">{text}</text>'
        for epoch in range(0, EPOCHS + 1, 2):
            across = self.x + WIDTH * epoch / EPOCHS
            yield f'<text x="{across:.1f}" y="{self.y + HEIGHT + 14}" text-anchor="middle">{epoch}</text>'
        yield f'<text x="{self.x + WIDTH / 2}" y="{self.y + HEIGHT + 30}" text-anchor="middle">{label}</text>'

    def line(self, curve: Sequence[Point], colour: str) -> Iterator[str]:
        places = " ".join(f"{across:.1f},{down:.1f}" for across, down in map(self.place, curve))
        style = f'fill="none" stroke="{colour}" stroke-width="1.2" opacity="0.8" clip-path="url(#{self.clip})"'
        yield f'<polyline points="{places}" {style}/>'
        for before, after in itertools.pairwise(curve):
            if before.world != after.world:
                across, down = self.place(after)
                yield f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3" fill="{colour}"/>'


def picture(found: dict[str, dict[str, Curves]]) -> Iterator[str]:
    """SVG: a column for each case, loss above accuracy; a line for each seed."""
    width, height = len(CASES) * (WIDTH + MARGIN) + MARGIN, 2 * (HEIGHT + MARGIN) + 2 * MARGIN
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
    yield 'font-size="11"><title>Test loss and accuracy against records trained on</title>'
    yield f'<rect width="{width}" height="{height}" fill="white"/>'
    for index, (name, colour) in enumerate(COLOURS.items()):
        across = MARGIN + index * 150
        yield f'<path d="M{across},20h24" stroke="{colour}" stroke-width="3"/>'
        yield f'<text x="{across + 30}" y="24">{name}</text>'
    yield f'<text x="{MARGIN + 3 * 150}" y="24">a line for each seed; a dot where the number has changed</text>'
    for column, (case, by_number) in enumerate(found.items()):
        end = max(curve[-1].records for curves in by_number.values() for curve in curves.values())
        x = MARGIN + column * (WIDTH + MARGIN)
        loss = Panel(x, MARGIN + 8, "loss", 0.0, 0.8, end)
        accuracy = Panel(x, 2 * MARGIN + HEIGHT + 24, "accuracy", 0.8, 1.0, end)
        yield from loss.frame(case, "test loss; epochs trained on", (0, 0.2, 0.4, 0.6, 0.8), "")
        yield from accuracy.frame("", "test accuracy; epochs trained on", (0.8, 0.85, 0.9, 0.95, 1), " %")
        for panel in (loss, accuracy):
            for how_many, curves in by_number.items():
                for curve in curves.values():
                    yield from panel.line(curve, COLOURS[how_many])
    yield "</svg>"


def free_port() -> int:
    """For the store; its companion for the traffic between members (10,000 higher) is free too."""
    for port in itertools.count(21_000 + os.getpid() % 10_000):
        with socket.socket() as one, socket.socket() as two:
            try:
                one.bind(("127.0.0.1", port))
                two.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            return port
    raise AssertionError("there is no end to counting")


async def experiment() -> dict[str, dict[str, Curves]]:
    """Runs every job, one after the other; the curves by case and by how many workers there were."""
    found: dict[str, dict[str, Curves]] = {}
    endpoint = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="elastic-run-convergence-") as folder:
        for number, (case, arguments) in enumerate(CASES.items()):
            found[case] = {}
            for how_many in HOW_MANY:
                if (case, how_many) == (SCALED_RATE, FOUR):
                    # --lr is for four ranks: it would be the same job again.
                    found[case][how_many] = found[SAME_RATE][how_many]
                    continue
                print(f"{time.monotonic() - began:6.1f} s  {case}: {how_many}", flush=True)
                checkpoint = Path(folder) / f"case-{number}-{HOW_MANY.index(how_many)}.pt"
                found[case][how_many] = await measure(how_many, arguments, checkpoint, endpoint)
    print(f"{time.monotonic() - began:6.1f} s  that was all", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--picture", type=Path, default=Path(__file__).parents[1] / "docs" / "pictures" / "convergence.svg"
    )
    training = parser.add_subparsers(dest="command").add_parser("train", help="what the workers of each job run")
    add_training_options(training)
    options = parser.parse_args()
    if options.command == "train":
        train(options)
    else:
        found = asyncio.run(experiment())
        options.picture.parent.mkdir(parents=True, exist_ok=True)
        options.picture.write_text("\n".join(picture(found)) + "\n")
        print(f"drawn into {options.picture}\n\n" + "\n".join(tables(found)))


if __name__ == "__main__":
    main()
