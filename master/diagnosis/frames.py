"""What a Python stack tells: whose code is there, and in which place of the script it is (pure)."""

import re
from collections.abc import Sequence

from .calls import called
from .evidence import Frame

STANDARD = re.compile(r"/lib(?:64)?/python3[^/]*/(?!(?:site|dist)-packages/)|^<")
LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib/python3[.\d]*/|^<|/elastic_agent/warm/|/_elastic_run|/elastic_run/adapters/"
)


def deciding(frames: Sequence[Frame]) -> Frame | None:
    """The innermost call that is not the standard library's."""
    return next((each for each in frames if not STANDARD.search(each.file)), None)


def decides(frames: Sequence[Frame], parts: Sequence[str]) -> bool:
    """That call is in a file whose path has one of these parts."""
    return is_in([own] if (own := deciding(frames)) else [], parts)


def waits_in_native_code(frames: Sequence[Frame]) -> bool:
    """No call of the standard library says what for; also where there is no stack."""
    return not frames or deciding(frames) is frames[0]


def is_in(frames: Sequence[Frame], parts: Sequence[str]) -> bool:
    """One of the calls is in a file whose path has one of these parts."""
    return any(part in frame.file for frame in frames for part in parts)


def script_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Those of the user's own files, the innermost first."""
    return [frame for frame in frames if not LIBRARY.search(frame.file)]


def spot_of(frames: Sequence[Frame]) -> tuple[tuple[str, int, str], ...]:
    """The calls in the user's files, and the first that they make into a library."""
    own = script_frames(frames)
    if not own:
        return tuple((frame.file, frame.line, frame.function) for frame in frames[-3:])
    spot = [(frame.file, frame.line, frame.function) for frame in own]
    if call := called(frames, own[0]):  # in which line of it a rank is, may differ
        spot.insert(0, (call.file, 0, call.function))
    return tuple(spot)
