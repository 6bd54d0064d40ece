"""A collective of two processes of one machine, at the address that other machines are told."""

import asyncio
import socket
from collections.abc import Mapping, Sequence

from ..doctor.findings import Finding, Python
from . import collective
from .collective import Place


async def alone(python: Python, address: str, environ: Mapping[str, str]) -> Sequence[Finding]:
    """What came of it; nothing where there is no torch to try it with."""
    if not python.torch:
        return ()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as free:
        port = free.getsockname()[1]
    both = await asyncio.gather(
        *(collective.run(python.path, Place(address, port, rank), environ) for rank in range(2))
    )
    problems = [each.problem for each in both if each.problem]
    if problems:
        text = f"two processes at {address} cannot do a collective ({problems[0]})"
        return (Finding("collective", "problem", f"{text}: --local-addr names another address"),)
    speed = min(each.speed for each in both) / 1e6
    return (Finding("collective", "ok", f"two processes at {address} exchange {speed:.0f} MB/s by gloo"),)
