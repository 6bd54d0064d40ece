"""A look at every module that Python's import machinery has found and is about to load.

`sys.meta_path` would show a finder of ours, and ask a user's finders before or after it. So this sits behind all of
them: in the place of the function that asks them. Who looks may put another spec in the place of the one found.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MACHINERY = "<frozen importlib._bootstrap>"
"""The file that the machinery's own code names. Frames of it are left out of tracebacks, and by `warnings`."""

machinery: Any = sys.modules["_frozen_importlib"]
_find: Callable[..., Any] = machinery._find_spec
_looks: list[Callable[[str, Any], Any]] = []


def _find_spec(name: str, path: Any, target: Any = None) -> Any:
    """As the machinery's own."""
    spec = _find(name, path, target)
    if sys._getframe(1).f_code.co_name != "_find_and_load_unlocked":  # pyright: ignore[reportPrivateUsage]
        return spec  # somebody only wants to know
    for look in list(_looks):
        if spec is None:
            break
        spec = look(name, spec)
    return spec


def as_machinery(function: Callable[..., Any]) -> None:
    """Has the frames of `function` treated as the machinery's own."""
    code: Any = function.__code__
    function.__code__ = code.replace(co_filename=MACHINERY)


as_machinery(_find_spec)


def add(look: Callable[[str, Any], Any]) -> None:
    """From now on `look(name, spec)` says which spec is loaded, after those that were added before it."""
    _looks.append(look)
    machinery._find_spec = _find_spec


def end() -> None:
    """Nobody looks any more."""
    _looks.clear()
    machinery._find_spec = _find
