"""Flags that a team repeats, from a file beside the script's project: `elastic-run.toml`, or `[tool.elastic-run]`.

    nnodes = "2:8"
    nproc-per-node = 8
    rdzv-conf = "lease_ttl=10"
    tee = 3

The command line comes first, then the environment's mirrors, then the file. Only the working directory is looked at: a
file further up would change jobs of people who do not know of it. What was taken from the file is printed. One that
another user may have planted there is not taken unless it is named: it could turn the encryption off, or run commands.
"""

import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...rendezvous.host.named_files import LARGEST_SETTINGS, planted, read_named, reason
from ..errors import UsageError
from .flags import BY_NAME, Flag, Given, Scanned, did_you_mean, value_of

OWN_FILE, SHARED_FILE, TABLE = "elastic-run.toml", "pyproject.toml", "elastic-run"

NONE = "none"
"""With `--config=none` no file is looked for."""

NOT_IN_A_FILE = ("config", "help", "version", "print-completion", "explain-preload", "dry-run")
"""Flags that say what one call is to do, and nothing of a job."""


def completed(scanned: Scanned, folder: Path | None) -> tuple[Scanned, tuple[str, ...]]:
    """The command line with what the file adds, and a line that says what that is.

    Args:
        folder: where a file is looked for; None: this command takes none.

    Raises UsageError for a file that cannot be read, an unknown flag, or a value that the flag does not take.
    """
    wanted = scanned.text("config")
    if folder is None:
        if wanted:
            raise UsageError(
                f"{scanned.source('config')} is for the command elastic-run only: give the flags themselves"
            )
        return scanned, ()
    if wanted == NONE:
        return scanned, ()
    file = Path(wanted or folder / (OWN_FILE if (folder / OWN_FILE).is_file() else SHARED_FILE))
    whose = "" if wanted else planted(file)
    if not wanted and not whose and _mentions(file) and file.stat().st_mode & stat.S_IWOTH:
        whose = "every user of this machine may write to it"
    if whose:
        return scanned, (f"{file.name} is not used: {whose}; --config={file.name} uses it all the same",)
    found = _read(file, whole=file.name != SHARED_FILE) if wanted or _mentions(file) else None
    if found is None:
        return scanned, ()
    name, values = found
    added = {flag.name: given for flag, given in _given(name, values) if flag.name not in scanned.given}
    if not added:
        return scanned, ()
    words = " ".join(f"--{flag}" + (f"={each.text}" if BY_NAME[flag].metavar else "") for flag, each in added.items())
    return replace(scanned, given={**scanned.given, **added}), (f"{name} adds {words}",)


def _mentions(file: Path) -> bool:
    """Most shared files have no table of ours, and a parser takes a while."""
    try:
        return file.name == OWN_FILE or b"elastic-run" in read_named(file, LARGEST_SETTINGS)
    except OSError:
        return False


def _read(file: Path, *, whole: bool) -> tuple[str, Mapping[str, Any]] | None:  # Any: what TOML holds
    """The file's name and its flags; None where a shared file has no table of ours."""
    import tomllib  # here, because few have such a file

    try:
        found = tomllib.loads(read_named(file, LARGEST_SETTINGS).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"the configuration file {file} cannot be read: {reason(error)}") from None
    if whole:
        return file.name, found
    tool = found.get("tool", {})
    table = tool.get(TABLE) if isinstance(tool, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  of any TOML
    if table is None:
        return None
    if not isinstance(table, dict):
        raise UsageError(f"{file}: tool.{TABLE} is not a table of flags")
    return f"{file.name} ([tool.{TABLE}])", table  # pyright: ignore[reportUnknownVariableType]  checked by `_given`


def _given(name: str, values: Mapping[str, Any]) -> Iterator[tuple[Flag, Given]]:  # Any: what TOML holds
    for key, value in values.items():
        flag = BY_NAME.get(key.replace("_", "-"))
        if flag is None:
            raise UsageError(f"{name}: there is no flag --{key}{did_you_mean(key, BY_NAME, prefix='--')}")
        if flag.name in NOT_IN_A_FILE:
            raise UsageError(f"{name}: --{flag.name} belongs on the command line")
        if isinstance(value, bool) and flag.bare:
            if value:
                yield flag, Given(flag.bare, f"{name}: {key} = true")
            continue
        if isinstance(value, bool) != (not flag.metavar):
            wants = f"a value, such as {flag.metavar}" if flag.metavar else "true or false"
            raise UsageError(f"{name}: {key} takes {wants}")
        source = f"{name}: {key} = {value!r}"
        if isinstance(value, bool):
            if value:
                yield flag, Given("1", source)
            continue
        texts = value if isinstance(value, list) and flag.repeated else [value]  # pyright: ignore[reportUnknownVariableType]  checked below
        if not texts or not all(isinstance(each, str | int | float) for each in texts):  # pyright: ignore[reportUnknownVariableType]  as above
            several = " or a list of them" if flag.repeated else ""
            raise UsageError(f"{name}: {key} takes a text or a number{several}")
        checks = [value_of(flag, str(each), source).text for each in texts]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]  as above
        yield flag, Given("\n".join(checks), source)
