"""One import that a script makes: the module's name, and what the script has changed before it that it may depend on.

That is the variables that it set or removed, and the search path. As a text, which agents keep and hand on without
looking into it: the name, then NAME=value for each variable, or NAME where it was removed, and =folder... for the path,
with separators between that no name and hardly any value holds.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing's, which is an import too many
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SEPARATOR = "\x1f"
BETWEEN_FOLDERS = "\x1e"


class Step:
    """See above.

    Attributes:
        name: of the module.
        environment: what the script had changed since the import before; None stands for a variable that is gone.
        path: `sys.path`, where the script had changed that since the import before; None where not.
    """

    __slots__ = ("environment", "name", "path")

    def __init__(self, text: str) -> None:
        self.name, *changes = text.split(SEPARATOR)
        self.environment: dict[str, str | None] = {}
        self.path: list[str] | None = None
        for change in changes:
            variable, equals, value = change.partition("=")
            if variable:
                self.environment[variable] = value if equals else None
            else:
                self.path = value.split(BETWEEN_FOLDERS)

    @property
    def needs_nothing(self) -> bool:
        """The script had changed nothing before it."""
        return not self.environment and self.path is None


def step_text(name: str, environment: Mapping[str, str | None], path: Sequence[str] | None = None) -> str:
    """The text of a step. ValueError where a value or a folder holds a separator, or there is no folder."""
    words = [name, *(variable if value is None else f"{variable}={value}" for variable, value in environment.items())]
    if path is not None:
        if not path or any(BETWEEN_FOLDERS in folder for folder in path):
            raise ValueError("a search path cannot be told")
        words.append("=" + BETWEEN_FOLDERS.join(path))
    if any(SEPARATOR in word for word in words):
        raise ValueError("a variable cannot be told")
    return SEPARATOR.join(words)


def step_name(text: str) -> str:
    """The module's name in a step's text."""
    return text.partition(SEPARATOR)[0]
