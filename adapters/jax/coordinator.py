"""JAX's coordination service in a process of its own, for one round: an agent runs this file beside its workers.

It uses `jaxlib` alone, and of that a function which is not public. Its clients' processes are watched by their agents,
which see a death at once, so the service itself takes no silence for one: a worker that compiles for minutes, or is
stopped by a debugger, is not lost.
"""

import ipaddress
import json
import os
import sys
from typing import Any

TRIED = "0.6, 0.8, 0.10"
"""Releases of jaxlib whose function was called by these arguments."""

PATIENCE_SECONDS = 10 * 24 * 3600
"""A client's heartbeats come at half of the time that its script gave it, which the service is not told."""

SHUTDOWN_SECONDS = "ELASTIC_RUN_JAX_SHUTDOWN_TIMEOUT"
"""The variable that says how long a worker that ends waits for the others to end; JAX's own 300 unless given."""


def main() -> None:
    """Serves the round that the line on stdin tells of, until the agent ends this process."""
    told = json.loads(sys.stdin.readline())
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # what it notes of each client
    start, heartbeats = _starter()
    address = f"{_listen_on(told['master_addr'])}:{told['master_port']}"
    shutdown = int(os.environ.get(SHUTDOWN_SECONDS, "300"))
    service = start(address, told["world_size"], shutdown_timeout=shutdown, **heartbeats)
    print("ready", flush=True)
    sys.stdin.read()
    service.shutdown()


def _listen_on(host: str) -> str:
    """This machine alone, where that is all that `host` means; else all its addresses, as JAX itself does."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "127.0.0.1" if host == "localhost" else "[::]"
    if not address.is_loopback:
        return "[::]"
    return f"[{address}]" if address.version == 6 else str(address)


def _starter() -> tuple[Any, dict[str, int]]:  # Any: jaxlib has no types for it
    """What starts the service, and the arguments by which it is patient. Exits, with words, where there is none."""
    import jaxlib.version

    try:
        library: Any = __import__("jaxlib._jax", fromlist=["_jax"])
    except ImportError:
        library = __import__("jaxlib.xla_extension", fromlist=["xla_extension"])
    try:
        start = library.get_distributed_runtime_service
        known = str(start.__doc__)
    except AttributeError:
        start, known = None, ""
    if start is None or "shutdown_timeout" not in known or "num_nodes" not in known:
        sys.exit(
            f"jaxlib {jaxlib.version.__version__} offers no coordination service in the form of the releases that this "
            f"was tried with ({TRIED}): set ELASTIC_RUN_JAX_COORDINATOR=worker on all nodes, and rank 0 will run it"
        )
    if "heartbeat_timeout" in known:
        return start, {"heartbeat_timeout": PATIENCE_SECONDS}
    return start, {"heartbeat_interval": PATIENCE_SECONDS // 10, "max_missing_heartbeats": 10}


if __name__ == "__main__":
    main()
