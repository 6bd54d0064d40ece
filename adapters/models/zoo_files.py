"""The models that `elastic-run new` prints: one file each, to be edited (loads none of them)."""

from pathlib import Path

ZOO = Path(__file__).with_name("zoo")


def list_names() -> list[str]:
    """Of all, sorted."""
    return sorted(path.stem for path in ZOO.glob("[!_]*.py"))


def read_model(name: str) -> str:
    """The file's text."""
    return (ZOO / f"{name}.py").read_text(encoding="utf-8")
