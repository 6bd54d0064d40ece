"""What a service prints: all of it is shown, but for the line by which it says that it is ready."""

import pytest

from elastic_run.elastic_agent.logs.output import Lines
from elastic_run.elastic_agent.workers.services import ReadyLines


class Shown(Lines):
    """Keeps what it is fed."""

    def __init__(self) -> None:
        self.data = b""

    def feed(self, data: bytes) -> None:
        self.data += data

    def end_line(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("portions", "ready", "shown"),
    [
        ((b"ready\n",), 1, b""),
        ((b"rea", b"dy", b"\n", b"more\n"), 1, b"more\n"),
        ((b"begins\nready\nserves\n",), 1, b"begins\nserves\n"),
        ((b"ready\r\n",), 1, b""),
        ((b"already\nready to go\n",), 0, b"already\nready to go\n"),
        ((b"ready", b" or not\n"), 0, b"ready or not\n"),
        ((b"al", b"ready\n", b"ready\n"), 1, b"already\n"),
        ((b"no end of ", b"a line"), 0, b"no end of a line"),
        ((b"ready",), 0, b"ready"),
        ((b"ready\n", b"ready\n"), 2, b""),
        ((b"ready: 4711 4712\n",), 1, b""),
        ((b"ready", b": 47", b"11\nmore\n"), 1, b"more\n"),
        ((b"ready:no word\n",), 0, b"ready:no word\n"),
    ],
)
def test_a_line_that_says_ready_is_heard_and_not_shown(portions: tuple[bytes, ...], ready: int, shown: bytes) -> None:
    lines, heard = Shown(), list[None]()
    stream = ReadyLines(lines, lambda _: heard.append(None))
    for portion in portions:
        stream.feed(portion)
    stream.close()
    assert (len(heard), lines.data) == (ready, shown)


def test_the_words_of_a_line_that_says_ready_are_heard() -> None:
    heard: list[str] = []
    stream = ReadyLines(Shown(), heard.append)
    for portion in (b"ready\nready: eth0 47", b"11 4712\nready: \n"):
        stream.feed(portion)
    assert heard == ["", "eth0 4711 4712", ""]
