"""Which nodes have another Python, torch, CUDA or NCCL than the others (pure).

Ranks of one job that run different versions may hang in their first collective, or sum what is not the same. The
version of most nodes is taken for the right one; of two alone nobody can tell.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ..doctor.findings import Python
from .pairs import shown

MOST_NAMED = 8
"""Nodes that a sentence names."""

Versions = tuple[tuple[str, str], ...]
"""Names and versions, in order."""


def versions_of(python: Python) -> Versions:
    """Those of the workers' Python that are compared."""
    minor = ".".join(python.version.split(".")[:2])
    known = (("Python", minor), ("torch", python.torch), ("CUDA", python.cuda), ("NCCL", python.nccl))
    return tuple((name, version or "none") for name, version in known)


def differences(nodes: Mapping[str, Versions]) -> Iterator[str]:
    """A sentence for each package of which nodes have different versions."""
    names = dict.fromkeys(name for versions in nodes.values() for name, _ in versions)
    for name in names:
        found = {node: dict(versions).get(name, "none") for node, versions in nodes.items()}
        counted = Counter(found.values()).most_common()
        if len(counted) < 2:
            continue
        (most, count), (_, second) = counted[:2]
        by_version = {version: [node for node, has in found.items() if has == version] for version, _ in counted}
        odd = [version for version, _ in counted if count == second or version != most]
        parts = [f"{version} on {_named(by_version[version])}" for version in odd]
        rest = "" if count == second else f", and {most} on all others"
        yield f"{name} differs: {', '.join(parts)}{rest}"


def _named(nodes: Sequence[str]) -> str:
    names = sorted(map(shown, nodes))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"
