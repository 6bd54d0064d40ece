"""The first host of a Slurm allocation (pure): where the job's store lives when nobody named one.

Slurm writes an allocation as a compressed list, `gpu[001-003,007],login1`: commas between names, and inside brackets
numbers and ranges of numbers. A name may hold several brackets (`rack[0-3]node[01-16]`). Every node of the
allocation reads the same text, so "the first" is the same host for all of them.
"""

from collections.abc import Mapping

LIST_VARIABLES = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
"""The allocation's list of hosts, and its name in old releases."""


def first_host(nodelist: str) -> str:
    """The first host of a compressed list.

    Raises:
        ValueError: the text is not such a list.
    """
    host: list[str] = []
    rest = nodelist.strip()
    while rest and not rest.startswith(","):
        if rest[0] == "[":
            inside, closed, rest = rest[1:].partition("]")
            number = inside.partition(",")[0].partition("-")[0]
            if not closed or not (number.isascii() and number.isdigit()):
                raise ValueError(f"{nodelist!r} is not a Slurm list of hosts")
            host.append(number)
        else:
            end = min((at for mark in ",[" if (at := rest.find(mark)) >= 0), default=len(rest))
            host.append(rest[:end])
            rest = rest[end:]
    name = "".join(host)
    if not name or any(mark.isspace() or mark in "]/:" for mark in name):
        raise ValueError(f"{nodelist!r} is not a Slurm list of hosts")
    return name


def allocation_host(environ: Mapping[str, str]) -> str | None:
    """The first host of the allocation that this process runs in; None outside of Slurm.

    Raises:
        ValueError: Slurm's variable holds something else than a list of hosts.
    """
    for variable in LIST_VARIABLES:
        if environ.get(variable):
            return first_host(environ[variable])
    return None
