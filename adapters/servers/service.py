"""The server of a job as its agent starts it (pure; loads no numpy)."""

from ..contract import Service

VARIABLE = "ELASTIC_RUN_SERVERS"
"""In a worker's environment: where the job's servers are."""

SERVER = Service(
    "server",
    ("-m", "elastic_run.adapters.servers.server"),
    lifetime="job",
    ready_seconds=120.0,  # its loops are compiled once, and kept
    variable=VARIABLE,
)
