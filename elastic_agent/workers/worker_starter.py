"""Starts workers: forks of a warm interpreter (`zygotes/`) where there is one and it fits, and else fresh processes."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence

from ...rendezvous.base.frozen import replace
from ..logs.output import Output
from ..zygotes.choice import Zygotes
from ..zygotes.seed import Limits, Recipe, Seed, shimmed, tagged
from ..zygotes.zygote import NotForked
from .failure import advice
from .started_worker import StartedWorker, WorkerSpec
from .streams import Printed, open_stream


class StartFailed(Exception):
    """This machine could not start the workers (its message says why); none of them runs."""


class WorkerStarter:
    """Makes processes of what is to be started; who hears of them is for the caller to see to.

    Args:
        tag: is in the environment of each.
        output: where what they print goes.
        seed: the process of a warm interpreter that runs already.
        limits: their soft limits; None: this process's own.

    Attributes:
        zygotes: the warm interpreters; None before there are any, and after the end.
    """

    def __init__(self, tag: str, output: Output, seed: Seed | None, limits: Limits | None) -> None:
        self._tag = tag
        self._output = output
        self._seed = seed
        self._limits = limits
        self.zygotes: Zygotes | None = None

    @property
    def sessions(self) -> frozenset[int]:
        """Of the warm interpreters, which are no workers."""
        return self.zygotes.sessions if self.zygotes is not None else frozenset()

    def warm(self, recipe: Recipe) -> None:
        """Begins to make the warm interpreter; `recipe.environment` is without the agent's tag."""
        seed, self._seed = self._seed, None
        made = replace(recipe.tagged(self._tag), limits=self._limits)
        self.zygotes = Zygotes(made, self._output.say, seed)
        self.zygotes.start()

    async def close(self) -> None:
        """No more workers are forked. What is left of the interpreters is ended with the workers."""
        if self.zygotes is not None:
            await self.zygotes.close()
            self.zygotes = None

    async def fork(self, specs: Sequence[WorkerSpec]) -> list[StartedWorker] | None:
        """All of `specs`, forked from the warm interpreter; None where they have to be started afresh.

        Raises StartFailed; the next stop finds what has been started.
        """
        environments = [tagged(spec.env, self._tag) for spec in specs]
        if self.zygotes is None or not self.zygotes.fits({spec.argv for spec in specs}, environments):
            return None
        with contextlib.ExitStack() as undo:
            pipes: list[tuple[Printed, Printed]] = []
            ends: list[tuple[int, int]] = []
            try:
                for spec in specs:
                    (out, out_end), (err, err_end) = self._pipes(spec, undo)
                    pipes.append((out, err))
                    ends.append((out_end, err_end))
                pids = await self.zygotes.fork(ends, environments, [spec.begin for spec in specs])
            except (NotForked, OSError):
                return None
            finally:
                for pair in ends:
                    for end in pair:
                        os.close(end)
            try:
                workers = [
                    StartedWorker(spec, pid, out, err) for spec, pid, (out, err) in zip(specs, pids, pipes, strict=True)
                ]
            except OSError as error:
                raise StartFailed(f"cannot watch the workers: {error}") from error
            undo.pop_all()
        return workers

    def start_afresh(self, specs: Sequence[WorkerSpec], attend: Callable[[StartedWorker], None]) -> list[StartedWorker]:
        """A new process for each of `specs`, or none at all (StartFailed); `attend` gets each as soon as it runs."""
        started: list[StartedWorker] = []
        for spec in specs:
            try:
                started.append(worker := self._spawn(spec))
                attend(worker)
            except OSError as error:
                for worker in started:
                    worker.counts = False
                    worker.send(signal.SIGKILL)
                raise StartFailed(
                    f"cannot start the worker of rank {spec.rank} (local {spec.local_rank}): {error}{advice(error)}"
                ) from error
        return started

    def _spawn(self, spec: WorkerSpec) -> StartedWorker:
        with contextlib.ExitStack() as undo:
            (out, out_end), (err, err_end) = self._pipes(spec, undo)
            try:
                # stdin is inherited, as torchrun does: a debugger in a single worker works.
                popen = subprocess.Popen(
                    shimmed(spec.argv, self._limits),
                    env=tagged(spec.env, self._tag),
                    stdout=out_end,
                    stderr=err_end,
                    start_new_session=True,
                )
            finally:
                os.close(out_end)
                os.close(err_end)
            try:
                worker = StartedWorker(spec, popen.pid, out, err, popen)
            except OSError:
                popen.kill()
                popen.wait()
                raise
            undo.pop_all()
        return worker

    def _pipes(self, spec: WorkerSpec, undo: contextlib.ExitStack) -> tuple[tuple[Printed, int], tuple[Printed, int]]:
        """Of stdout and stderr: our reading end and the worker's writing end, which the caller closes."""
        out = open_stream(self._output, spec.round, spec.rank, spec.local_rank, "stdout", undo)
        try:
            return out, open_stream(self._output, spec.round, spec.rank, spec.local_rank, "stderr", undo)
        except OSError:
            os.close(out[1])
            raise
