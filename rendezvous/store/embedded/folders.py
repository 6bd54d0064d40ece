"""Where an embedded etcd keeps its data, its log and its locks on this machine.

The lock of a port is the machine's: `/tmp/elastic-run-<uid>/etcd-<port>.lock`, so that two agents
here agree even where their directories differ, and held by supervisor and etcd for as long as either lives. It is not
in $XDG_RUNTIME_DIR: sessions of one user disagree about that, and it goes away at logout, under a living store. It is
not in the user's home: that may be one folder on many machines, whose members each need a lock of their own. What
cleans the temporary folder by age leaves it alone, because the supervisor holds a lock on the folder, which
systemd-tmpfiles respects, and renews the times of all that is in it, which every cleaner respects.

A member's folder holds `data`, `log` and `member.json`. An agent that uses a store of this machine holds a shared lock
on `etcd-<port>.users` beside the lock: the supervisor does not stop the store of an agent that lives, also where it is
stopped and its lease has ended.
"""

import contextlib
import json
import os
import re
import socket
import tempfile
from pathlib import Path
from typing import Any

from ...base.errors import NoUsableEtcd
from ...base.frozen import dataclass
from ...host.own_files import file_name, own_folder
from ..endpoint import Endpoint
from .member_slot import Data, cluster_token, member_name

_TAIL_LINES = 5
_STACKS = re.compile(r"^goroutine \d+ .*?(?=^(?:\{|\[elastic-run\])|\Z)", re.MULTILINE | re.DOTALL)  # what Go prints


class EmbeddedFailed(NoUsableEtcd):
    """A member of the store could not be started here, or ended."""


def runtime_directory(*, make: bool = True) -> Path:
    """The user's folder on this machine for locks and, by default, data. Raises EmbeddedFailed.

    Anybody can make the first one of its names in /tmp before this user does. Then it is the next one, which lies in a
    folder of the user's, for all agents of this user alike.

    Args:
        make: make it if it is absent; False: only say where it is, or would be.
    """
    why: list[str] = []
    for path in _runtime_paths():
        try:
            if make or os.path.lexists(path):
                own_folder(path)
            return path
        except OSError as error:
            why.append(str(error))
    raise EmbeddedFailed(f"there is no folder here that only you can use: {'; '.join(why)}. Set TMPDIR to one")


def _runtime_paths() -> tuple[Path, ...]:
    """In the order in which they are tried; the last ones may be shared by machines, and so name this one."""
    name = f"elastic-run-{os.getuid()}"
    found = [Path(tempfile.gettempdir()) / name]
    if (given := os.environ.get("XDG_RUNTIME_DIR", "")).startswith("/"):
        found.append(Path(given) / name)
    with contextlib.suppress(RuntimeError):  # no home
        found.append(Path.home() / f".{name}-{file_name(socket.gethostname())}")
    return tuple(found)


def last_lines(log: Path, count: int = _TAIL_LINES) -> str:
    """The end of etcd's own log, each line's message only, for an error."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return "no log"
    lines = [line for line in _STACKS.sub("", text).splitlines() if line]
    return "\n".join(f"    {_message(line)}" for line in lines[-count:]) or "its log is empty"


def _message(line: str) -> str:
    try:
        entry: Any = json.loads(line)  # Any: JSON
        fields = {key: value for key, value in entry.items() if key in ("error", "address", "remote-peer-id")}
        return f"{entry['level']}: {entry['msg']}" + (f" {fields}" if fields else "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return line[:400]


@dataclass(frozen=True, slots=True)
class MemberFolder:
    path: Path

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def tls(self) -> Path:
        return self.path / "tls"

    @property
    def written(self) -> bool:
        """etcd has begun to keep data here."""
        return (self.data / "member" / "wal").is_dir()

    def last_words(self, advice: str = "") -> str:
        """What its etcd said last, and what to do: where no more is known, about damaged data."""
        return (
            f"the end of {self.log}:\n{last_lines(self.log)}\n{advice or f'If its data is damaged, remove {self.path}'}"
        )

    def seen(self, endpoint: Endpoint) -> Data:
        """What this folder says of the member whose data it holds."""
        try:
            raw: Any = json.loads((self.path / "member.json").read_text())  # Any: JSON
            return Data(endpoint, str(raw["birth"]), int(raw["member"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return Data(endpoint)

    def remember(self, birth: str, member: int) -> None:
        """Notes of which store the data is, and of which member. Raises OSError."""
        draft = self.path / "member.json.new"
        draft.write_text(json.dumps({"birth": birth, "member": member}))
        draft.replace(self.path / "member.json")


class StoreFolders:
    """Where the members of one store that are on this machine have their locks and their data.

    Args:
        endpoints: of all its members.
        directory: for members' data and logs; None: the user's folder on this machine.
        runtime: for locks; None: the user's folder on this machine.

    Attributes:
        generation: 2 where the store began anew beside what is left of another, else 1.
    """

    def __init__(self, endpoints: tuple[Endpoint, ...], directory: Path | None, runtime: Path | None) -> None:
        self._endpoints = endpoints
        self._directory = directory
        self._runtime = runtime
        self.generation = 1

    def lock(self, endpoint: Endpoint, *, make: bool = True) -> Path:
        """That of its port; `make`: its folder, if that is absent. Raises EmbeddedFailed."""
        if make:
            self._runtime = self._runtime or runtime_directory()
            self._runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        return (self._runtime or runtime_directory(make=False)) / f"etcd-{endpoint.port}.lock"

    def users(self, endpoint: Endpoint) -> Path:
        """By which its supervisor knows that somebody uses the store."""
        return self.lock(endpoint).with_suffix(".users")

    def home(self, endpoint: Endpoint, generation: int | None = None) -> MemberFolder:
        """Of its member, of that generation of the store; None: of the present one."""
        token = cluster_token(self._endpoints, generation or self.generation)
        base = self._directory.absolute() if self._directory else self._runtime or runtime_directory(make=False)
        return MemberFolder(base / f"{member_name(endpoint)}-{token.rpartition('-')[2]}")

    def homes(self, endpoint: Endpoint) -> tuple[MemberFolder, MemberFolder]:
        """Of both generations."""
        return self.home(endpoint, 1), self.home(endpoint, 2)

    def home_with_data(self, endpoint: Endpoint) -> MemberFolder:
        """That of the generation which has data; where neither has, the present one's."""
        return next((home for home in self.homes(endpoint) if home.written), self.home(endpoint))
