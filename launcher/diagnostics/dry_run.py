"""`elastic-run --dry-run`: what this command would start, where its nodes would meet, and with which environment.

Nothing is started, nothing is written and no port is opened; a name server may be asked.
"""

import os
import shlex
import sys
from collections.abc import Iterator

from ...adapters.contract import Round, Worker
from ...rendezvous.base.errors import NoUsableEtcd
from ...rendezvous.store.endpoint import Endpoint, is_local
from ..address import Address, Unreachable, address_of, endpoints_of
from ..early import inherited, never_warm, node_name, worker_command, worker_settings
from ..errors import UsageError
from ..settings import Options, join_command
from ..trust import in_words

ANY_PORT = 0
"""A port that is chosen when it is needed."""


def main(options: Options) -> int:
    """Prints it, and returns the exit code. Raises UsageError where the job would be refused."""
    endpoints = endpoints_of(options)
    try:
        where = address_of(options, endpoints)
    except Unreachable as error:
        raise UsageError(str(error)) from None
    sys.stdout.write("".join(f"{line}\n" for line in (*options.notes, *_lines(options, endpoints, where))))
    return 0


def _lines(options: Options, endpoints: tuple[Endpoint, ...], where: Address) -> Iterator[str]:
    given = "given" if options.job_id_given else "derived from the command"
    yield f"job: {options.job_id} ({given})"
    yield f"nodes: {options.nodes}; this one is {node_name(options)} at {where.host}"
    for role in options.roles:
        yield f"role {role.name}: {role.min_nodes}:{role.max_nodes} nodes, {role.nproc or options.nproc} workers each"
    cold = never_warm(options, inherited(os.environ))
    how = f"fresh processes: {cold}" if cold else "forked from one interpreter (see --explain-preload)"
    yield f"workers here: {options.likely_nproc}, {how}"
    yield f"command of each: {shlex.join(worker_command(options.command))}"
    yield from _store(options, endpoints, where)
    log_dir = options.output.log_dir
    yield f"logs: {log_dir}" if log_dir else "logs: on the terminal only (--log-dir keeps them in files)"
    yield (
        f"failures of the script before the job ends: {options.max_restarts}; a silent node is lost after "
        f"{options.timing.lease_ttl} s; workers have {options.shutdown_timeout:g} s to end"
    )
    yield "environment of rank 0 in the smallest first round (without inherited variables, ports and files):"
    for name, value in sorted(_environment(options, where).items()):
        yield f"  {name}={value}"


def _store(options: Options, endpoints: tuple[Endpoint, ...], where: Address) -> Iterator[str]:
    if options.store.kind == "memory":
        yield "store: in the agent's memory; no port is opened for other nodes"
        return
    from ...rendezvous.store.embedded.binary import find_binary, peer_port

    text = ",".join(map(str, endpoints))
    own = [endpoint for endpoint in endpoints if is_local(endpoint.host) and not endpoint.own]
    if own:
        try:
            etcd = f"{find_binary()}"
        except NoUsableEtcd as error:
            etcd = f"none is installed ({error})"
        ports = ", ".join(f"{endpoint.port} and {peer_port(endpoint.port)}" for endpoint in own)
        yield f"store: etcd at {text}; where nothing answers, this node starts one on the ports {ports}: {etcd}"
    else:
        yield f"store: etcd at {text}"
    yield f"ports for other nodes, on {where.host}: one of the agent, and one of rank 0, which changes in each round"
    yield f"encryption: {in_words(options.trust, endpoints, os.environ)}"
    yield f"on the other machines: {join_command(options, ','.join(each.typed for each in endpoints))}"


def _environment(options: Options, where: Address) -> dict[str, str]:
    """What the launcher sets for rank 0; ports that are not chosen yet are 0."""
    nproc, least = options.likely_nproc, options.nodes.minimum
    workers = worker_settings(options, os.environ)
    size = least * nproc
    round = Round(
        options.job_id,
        1,
        size,
        least,
        where.host,
        ANY_PORT,
        max_restarts=options.max_restarts,
        signals=workers.signal_names,
    )
    worker = Worker(0, 0, nproc, workers.node, 0, workers.role or "default", 0, size, own_device=workers.own_device)
    try:
        found = workers.environment(round, worker)
    except (ValueError, IndexError, KeyError) as error:
        return {"(the adapter needs a real round to make it)": repr(error)}
    return {name: value for name, value in found.items() if value and workers.inherited.get(name) != value}
