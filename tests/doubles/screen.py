"""The launcher's two streams, in memory, and what writes to them."""

import io
from dataclasses import dataclass
from pathlib import Path

from elastic_run.elastic_agent.logs.output import Output


class Screen:
    """The launcher's two streams, in memory."""

    def __init__(self) -> None:
        self.out = io.BytesIO()
        self.err = io.BytesIO()


@dataclass
class Make:
    """Makes an output that writes to the screen, with logs in a folder; `wanted` are other arguments of `Output`."""

    screen: Screen
    log_dir: Path

    def __call__(self, **wanted: object) -> Output:
        given: dict[str, object] = {
            "host": "node1",
            "log_dir": self.log_dir,
            "job_id": "job",
            "color": False,
            "stream_out": self.screen.out,
            "stream_err": self.screen.err,
        }
        return Output(**{**given, **wanted})  # type: ignore[arg-type]  # a shorthand


async def print_all(output: Output, *pieces: bytes, rank: int = 0, local_rank: int = 0) -> None:
    lines = output.open(1, rank, local_rank, "stdout")
    for piece in pieces:
        lines.feed(piece)
    lines.close()
    await output.close(succeeded=True)
