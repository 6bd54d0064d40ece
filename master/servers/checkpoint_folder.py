"""Checkpoints of a job's tables, in a folder that all of its machines see.

    FOLDER/JOB-7/part-0    what server 0 had of the slots whose primary it was, in version 7 of the slot table
    FOLDER/JOB-7.json      written when all parts are there: without it the checkpoint is none

The number of a checkpoint is that of the version in which it was ordered, which no two have, in no run of the job.
"""

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.host.lasting_files import write_whole
from ...rendezvous.wire.fields import Number
from ...rendezvous.wire.values import Count, Malformed, decode, encode
from .slot_table import MOST_SERVERS

KEPT = 2
"""Whole checkpoints that stay: one may be read while the next is finished."""


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """That a checkpoint is whole.

    Attributes:
        version: its number.
        parts: the numbers of the servers that have written one.
    """

    version: Number
    parts: Annotated[tuple[Number, ...], Count(MOST_SERVERS)]


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """Where one job's are. All but `name_part` raise OSError.

    Attributes:
        folder: which may not exist yet.
        job: the job's id.
    """

    folder: Path
    job: str

    def name_part(self, version: int, number: int) -> Path:
        """The file of server `number`."""
        return self.folder / f"{self._stem}-{version}" / f"part-{number}"

    def list_versions(self) -> tuple[int, int]:
        """The newest whole checkpoint, and the largest number that there is of any; 0: none."""
        whole = max((version for version, _, suffix in self._find_all() if suffix), default=0)
        return whole, max((version for version, _, _ in self._find_all()), default=0)

    def find_time(self, version: int) -> float:
        """When that one was whole, in seconds since 1970 by the folder's clock; 0: it is none."""
        return self._manifest(version).stat().st_mtime if version else 0.0

    def read_parts(self, version: int) -> list[Path]:
        """Those of a whole checkpoint. Raises Malformed as well."""
        manifest = decode(CheckpointManifest, self._manifest(version).read_bytes())
        if manifest.version != version:
            raise Malformed(f"{self._manifest(version)} is of checkpoint {manifest.version}")
        return [self.name_part(version, number) for number in manifest.parts]

    def complete_checkpoint(self, manifest: CheckpointManifest) -> None:
        """All parts are written: says so for good."""
        for number in manifest.parts:
            if not (part := self.name_part(manifest.version, number)).exists():
                raise FileNotFoundError(f"{part} is not there: is it the same folder on all machines?")
        with write_whole(self._manifest(manifest.version)) as file:
            file.write(encode(manifest))

    def remove_old(self, newest: int) -> None:
        """Of those below this number: what is torn, or too old."""
        whole = sorted(version for version, _, suffix in self._find_all() if suffix)
        kept = whole[-KEPT:]
        # First what says that a checkpoint is whole.
        for version, path, suffix in sorted(self._find_all(), key=lambda found: found[2], reverse=True):
            if version < newest and version not in kept:
                if suffix:
                    path.unlink(missing_ok=True)
                else:
                    shutil.rmtree(path)

    @property
    def _stem(self) -> str:
        return quote(self.job, safe="")

    def _manifest(self, version: int) -> Path:
        return self.folder / f"{self._stem}-{version}.json"

    def _find_all(self) -> Iterator[tuple[int, Path, str]]:
        """Folders and manifests: the number, the path, and `.json` for a manifest."""
        pattern = re.compile(re.escape(self._stem) + r"-([1-9][0-9]{0,15})(\.json)?")
        paths = list[Path]()
        with contextlib.suppress(FileNotFoundError):
            paths = list(self.folder.iterdir())
        for path in paths:
            if match := pattern.fullmatch(path.name):
                yield int(match[1]), path, match[2] or ""
