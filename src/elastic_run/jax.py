"""JAX: joins a worker to the other processes of its round.

    import elastic_run

    elastic_run.jax.initialize()

Importing this loads JAX. A script that calls `jax.distributed.initialize()` itself needs nothing of it.
"""

from .adapters.jax.processes import initialize

__all__ = ["initialize"]


def __dir__() -> list[str]:
    return sorted(__all__)
