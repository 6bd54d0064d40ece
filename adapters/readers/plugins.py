"""Which class reads which files: by extension or scheme, built in or of an installed package (an entry point)."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

from .contract import RecordReader
from .errors import BadFiles
from .found_files import extension_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "elastic_run.readers"
"""The group of entry points. A point's name is an extension or a scheme; its object is a class, a `RecordReader`."""

BUILT_IN: Mapping[str, str] = {
    "csv": "csv_reader:CsvReader",
    "tsv": "csv_reader:CsvReader",
    "parquet": "arrow_readers:ParquetReader",
    "orc": "arrow_readers:OrcReader",
    "arrow": "arrow_readers:IpcReader",
    "feather": "arrow_readers:IpcReader",
    "tar": "tar_reader:TarReader",
    "images": "image_reader:ImageReader",
}
"""The module and the class of each."""

_COMPRESSED = ("bz2", "gz", "xz", "zip", "zst")


def format_of(files: Sequence[str], given: str) -> str:
    """The extension or scheme that all files have, or the one that is given for them. Raises BadFiles."""
    if given:
        return given
    first = files[0]
    for file in files:
        if _format_of(file) != _format_of(first):
            raise BadFiles(f"{first} and {file} are of different formats: open them one after the other")
    return _format_of(first)


def _format_of(file: str) -> str:
    scheme, found, _ = file.partition("://")
    return scheme if found else extension_of(file)


def has_reader(name: str) -> bool:
    """Whether a reader of that extension or scheme is built in or installed."""
    return name in BUILT_IN or any(point.name == name for point in _installed())


def reader_class(name: str, file: str) -> type[RecordReader]:
    """The class that reads files of that format, of which `file` is one. Raises BadFiles."""
    if name in BUILT_IN:
        module, _, wanted = BUILT_IN[name].partition(":")
        try:
            return cast(type[RecordReader], getattr(import_module(f".{module}", __package__), wanted))
        except ModuleNotFoundError as error:
            raise BadFiles(
                f"{file} cannot be read without the package {error.name}: install elastic-run with its extra `readers`"
            ) from None
    points = _installed()
    for point in points:
        if point.name == name:
            return cast(type[RecordReader], point.load())
    known = sorted({*BUILT_IN, *(point.name for point in points)})
    what = f"the format {name!r}" if name else "a format without an extension, unless format= names it"
    why = ", nor could the records of a file that is compressed as a whole be numbered" if name in _COMPRESSED else ""
    raise BadFiles(f"{file} cannot be opened: no reader knows {what}{why}. There are readers of {', '.join(known)}")


def _installed() -> "EntryPoints":
    from importlib.metadata import entry_points  # here, because few scripts need it, and it takes a while to load

    return entry_points(group=GROUP)
