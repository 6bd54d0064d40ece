"""The `RecordReader` of folders of images, one record each: `images://photos` is the folder `photos`."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ...rendezvous.host.named_files import open_to_read, reason
from .contract import Columns
from .errors import BadFiles, FileChanged

EXTENSIONS = frozenset((".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))
"""Of files that are images; others in the folder are none of the records."""

COLUMNS: Mapping[str, str] = {"image": "bytes", "label": "str", "name": "str"}


class ImageReader:
    """The images in folders and all folders within them, sorted by name.

    Args:
        files: `images://` and a folder, each.
        kinds: none can be given: `image` is a file's content, `label` the first folder on its way (None where it lies
            in none), `name` its way within the folder.

    Raises BadFiles.
    """

    def __init__(self, files: Sequence[str], kinds: Mapping[str, str]) -> None:
        if kinds:
            raise BadFiles("kinds= is of no use for images: their columns are image, label and name")
        self._folders = {file: Path(file.partition("://")[2]) for file in files}
        self._names = {file: sorted(_names_of(folder, Path())) for file, folder in self._folders.items()}
        for file, names in self._names.items():
            if not names:
                raise BadFiles(
                    f"there is no image in {self._folders[file]}: {', '.join(sorted(EXTENSIONS))} are looked for"
                )

    @property
    def columns(self) -> Mapping[str, str]:
        """See COLUMNS."""
        return COLUMNS

    def size(self, file: str) -> int:
        """How many images a folder has."""
        return len(self._names[file])

    def place(self, file: str, index: int) -> str:
        """The image's own name."""
        return str(self._folders[file] / self._names[file][index])

    def read(self, file: str, indices: Sequence[int]) -> Columns:
        """The images with these numbers, in this order. Raises FileChanged."""
        names = [self._names[file][index] for index in indices]
        images = [_content_of(self._folders[file] / name) for name in names]
        labels = [Path(name).parts[0] if "/" in name else None for name in names]
        return Columns({"image": images, "label": labels, "name": names})


def _names_of(folder: Path, within: Path) -> Iterator[str]:
    try:
        for each in os.scandir(folder / within):
            if each.name.startswith((".", "_")):
                continue
            if each.is_dir(follow_symlinks=False):
                yield from _names_of(folder, within / each.name)
            elif Path(each.name).suffix.lower() in EXTENSIONS and not each.is_dir():
                if not each.is_file():
                    raise BadFiles(f"{folder / within / each.name} is no file, or a link to none: remove it")
                yield str(within / each.name)
    except OSError as error:
        raise BadFiles(f"the folder {folder / within} cannot be read: {reason(error)}") from None


def _content_of(path: Path) -> bytes:
    try:
        with open_to_read(path) as opened:
            return opened.read()
    except OSError as error:
        raise FileChanged(f"the image {path} cannot be read any more: {reason(error)}") from None
