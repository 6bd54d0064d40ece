"""`elastic-run report`: a job's history as one page."""

import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...rendezvous.base.plural import plural
from ...rendezvous.base.visible import visible
from ...rendezvous.host.named_files import read_named, write_named
from ..console import say
from ..errors import UsageError
from ..goodput.words import local_time
from ..history.records import SUFFIX, Record, read
from .page import page
from .story import File, Story, find_run_times, tell

USAGE = """\
elastic-run report FILE|DIR ... [-o page.html] [--run=RUN]

Makes one HTML page from the files that a job's nodes have written with --history=DIR. One file is enough; the files of
all nodes show more. The page loads nothing from elsewhere.

  -o FILE     write the page there; - for standard output (default: report.html)
  --run=RUN   the run of the job, if the files have several (default: the newest)

Exit code: 0; 2 if there is no such history.
"""


def main(words: Sequence[str], _: Mapping[str, str] | None = None) -> int:
    """Writes the page, and returns the exit code. Raises UsageError."""
    output, run, names = _parsed(words)
    files = [_file(path) for name in names for path in _paths(Path(name))]
    runs = find_run_times(files)
    if run is not None and run not in runs:
        raise UsageError(f"--run={run}: there is no such run; there are {', '.join(map(_run, runs.items())) or 'none'}")
    story = tell(files, run)
    if story is None:
        raise UsageError(f"{', '.join(names)}: no file of a history ({SUFFIX}) tells of a job")
    if run is None and (others := [each for each in runs.items() if each[0] != story.run]):
        say(f"this is run {story.run}; --run= selects another: {', '.join(map(_run, others))}")
    _write(output, page(story))
    say(_summary(story, output))
    return 0


def _parsed(words: Sequence[str]) -> tuple[str, str | None, list[str]]:
    output, run, names, left = "report.html", None, list[str](), list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in ("-o", "--output", "--run"):
            if not equals:
                if not left:
                    raise UsageError(f"elastic-run report: {word} needs a value")
                value = left.pop(0)
            output, run = (output, value) if name == "--run" else (value, run)
        elif word.startswith("-") and word != "-":
            raise UsageError(f"elastic-run report does not take {word}")
        else:
            names.append(word)
    if not names:
        raise UsageError("elastic-run report needs a FILE or a DIR that --history=DIR has written")
    return output, run, names


def _paths(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(each for each in path.rglob(f"*{SUFFIX}") if each.is_file())
    return [path]


def _file(path: Path) -> File:
    """Raises UsageError."""
    records, unread = list[Record](), 0
    try:
        for each in read(io.BytesIO(read_named(path))):
            if each is None:
                unread += 1
            else:
                records.append(each)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}: name a file or a folder that --history has written"
        ) from None
    return File(path.name, tuple(records), unread)


def _write(output: str, text: str) -> None:
    if output == "-":
        sys.stdout.write(text)
        return
    try:
        write_named(Path(output), text)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}: name another file with -o") from None


def _run(of: tuple[str, tuple[float, float]]) -> str:
    run, (began, until) = of
    return f"{visible(run)} ({local_time(began)} to {local_time(until)})"


def _summary(story: Story, output: str) -> str:
    rounds = sum(each.state == "open" for each in story.changes)
    where = "standard output" if output == "-" else output
    done = f"{plural(rounds, 'round')}, {plural(len(story.interruptions), 'interruption')}"
    when = f"{local_time(story.began)} to {local_time(story.until)}{'' if story.over else ' so far'}"
    return f"job {visible(story.job)}, {when}: {done}: {where}"
