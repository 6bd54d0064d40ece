"""Bytes of workers become lines on a terminal: what is shown when, and under which prefix."""

from elastic_run.elastic_agent.logs.lines import PROGRESS_SECONDS, Piece, Splitter
from elastic_run.elastic_agent.logs.terminal import Terminal
from elastic_run.elastic_agent.logs.writer import PIPE_PROMPT_SECONDS, PROMPT_SECONDS, Lane, Stream


class Screen(Terminal):
    """A terminal in memory."""

    def __init__(self, *, interactive: bool) -> None:
        self.name = "screen"
        self.closed = False
        self.interactive = interactive
        self.shown = b""

    def write(self, data: memoryview) -> int:
        self.shown += bytes(data)
        return len(data)


class Job:
    """Two workers before one terminal, with the time in hand."""

    def __init__(self, *, interactive: bool, workers: int = 2) -> None:
        self.screen = Screen(interactive=interactive)
        self.lane = Lane(self.screen, lambda _: None)
        self.streams = [Stream(worker=rank, prefix=b"[%d] " % rank, lane=self.lane) for rank in range(workers)]
        for stream in self.streams:
            self.lane.open(stream)

    def feed(self, rank: int, data: bytes, now: float) -> None:
        self.lane.feed(self.streams[rank], data, None)
        self.lane.write(now)

    def wait(self, now: float) -> float | None:
        seconds = self.lane.prompt(now)
        self.lane.write(now)
        return seconds


def test_a_prompt_is_shown_when_nothing_more_has_come_for_a_while():
    job = Job(interactive=True)
    job.feed(0, b"(Pdb) ", 0.0)
    assert job.wait(0.0) == PROMPT_SECONDS
    assert job.screen.shown == b""
    assert job.wait(PROMPT_SECONDS) is None
    assert job.screen.shown == b"[0] (Pdb) "


def test_what_comes_after_a_prompt_goes_on_under_no_new_prefix():
    job = Job(interactive=True)
    job.feed(0, b"(Pdb) ", 1.0)
    job.wait(2.0)
    job.feed(0, b"5\n(Pdb) ", 3.0)
    job.wait(4.0)
    assert job.screen.shown == b"[0] (Pdb) 5\n[0] (Pdb) "


def test_who_writes_after_a_prompt_of_another_ends_its_line_first():
    job = Job(interactive=True)
    job.feed(0, b"name? ", 1.0)
    job.wait(2.0)
    job.feed(1, b"step 1\n", 3.0)
    job.lane.say(b"[launcher] a line\n")
    job.feed(0, b"thanks\n", 4.0)
    assert job.screen.shown == b"[0] name? \n[1] step 1\n[launcher] a line\n[0] thanks\n"


def test_a_line_that_another_has_broken_off_is_shown_in_parts_only_now_and_then():
    job = Job(interactive=True)
    job.feed(0, b".", 1.0)
    job.wait(2.0)
    job.feed(1, b"step\n", 2.0)
    job.feed(0, b".", 3.0)
    assert job.wait(4.0) == PROGRESS_SECONDS - 2.0
    assert job.screen.shown == b"[0] .\n[1] step\n"
    job.wait(2.0 + PROGRESS_SECONDS)
    assert job.screen.shown == b"[0] .\n[1] step\n[0] ."


def test_behind_a_pipe_only_one_worker_s_lines_are_shown_before_they_end():
    several = Job(interactive=False)
    several.feed(0, b"loss: ", 1.0)
    assert several.wait(100.0) is None
    assert several.screen.shown == b""
    one = Job(interactive=False, workers=1)
    one.feed(0, b"(Pdb) ", 1.0)
    one.wait(1.0 + PIPE_PROMPT_SECONDS)
    assert one.screen.shown == b"[0] (Pdb) "


def test_a_progress_bar_is_no_prompt():
    job = Job(interactive=True)
    job.feed(0, b"\r10%", 1.0)
    assert job.wait(100.0) is None
    job.feed(0, b"\r20%", 101.0)
    assert job.wait(200.0) is None
    assert job.screen.shown == b"[0] 10%\n"


def test_a_prompt_that_overwrites_itself_later_keeps_what_was_shown_of_it():
    splitter = Splitter()
    assert splitter.feed(b"load", 1.0) == []
    assert splitter.take() == Piece(b"load", ends=False)
    assert splitter.feed(b"ing\r50%\r100%\n", 2.0) == [
        Piece(b"ing", ends=True),
        Piece(b"50%", ends=True),
        Piece(b"100%", ends=True),
    ]


def test_the_end_of_a_stream_ends_a_line_of_which_all_was_shown():
    splitter = Splitter()
    splitter.feed(b"bye", 1.0)
    splitter.take()
    assert splitter.end() == [Piece(b"", ends=True)]
    assert splitter.end() == []
