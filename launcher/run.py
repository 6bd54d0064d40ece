"""Wires one agent: from what was asked for to a store, an agent and what a person reads at the end."""

import asyncio
import contextlib
import errno
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO

from ..elastic_agent import agent_trace as recording
from ..elastic_agent import plan
from ..elastic_agent.agent import Agent, Result
from ..elastic_agent.facts import Setup
from ..elastic_agent.local_machine import RealMachine
from ..elastic_agent.logs.output import Output
from ..elastic_agent.node.preemption import REPEAT_SECONDS
from ..elastic_agent.processes.open_files import all_allowed
from ..elastic_agent.timeline import Timeline
from ..master.controller import Terms
from ..rendezvous.errors import NoUsableEtcd, RendezvousError, StoreUnavailable
from ..rendezvous.member import Fingerprint
from ..rendezvous.store.contract import Store
from ..rendezvous.store.endpoint import Endpoint, binding, interface_addresses, is_loopback, resolve, routable_address
from ..rendezvous.store.memory_store import MemoryStore
from ..rendezvous.trace_file import AGENT, Trace
from ..rendezvous.version import VERSION
from . import roles
from .early import heeded, inherited, node_name, recipe, worker_command
from .settings import Command, Credentials, Options, join_command
from .source import digests
from .summary import last_lines, write_json

if TYPE_CHECKING:
    from ..elastic_agent.zygotes.seed import Seed
    from ..rendezvous.store.embedded.watchdog import Kept
    from ..rendezvous.store.etcd.etcd_store import Credentials as EtcdUser
    from ..rendezvous.store.etcd.etcd_store import EtcdStore, Tls


class Unreachable(RendezvousError):
    """The others could not reach this node under the address that it was given."""


class NobodyAnswered(RendezvousError):
    """The store did not answer within `join_timeout`; nothing was started."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where this node is for the others.

    Attributes:
        host: what they call it.
        bind: what its own listener binds; None where there are no others.
    """

    host: str
    bind: str | None


def address_of(options: Options, endpoints: tuple[Endpoint, ...]) -> Address:
    """Which address this node has for the others: loopback, unless an endpoint or `--local-addr` says otherwise."""
    if options.store.kind == "memory":
        return Address("127.0.0.1", None)
    if options.local_addr:
        if not resolve(options.local_addr):
            raise Unreachable(
                f"--local-addr={options.local_addr} does not resolve here: give this machine's address, or a "
                "name that the other machines know"
            )
        bound = binding(options.local_addr, endpoints)
        reachable = any(not is_loopback(address) for address in resolve(options.local_addr))
        return Address(options.local_addr if reachable else bound.advertise, bound.listen)
    addresses = [resolve(endpoint.host) for endpoint in endpoints]
    if all(found and all(map(is_loopback, found)) for found in addresses) and options.store.kind != "implicit":
        names_loopback = all(
            endpoint.host == "localhost" or endpoint.host in found
            for endpoint, found in zip(endpoints, addresses, strict=True)
        )
        if names_loopback:
            return Address(addresses[0][0], addresses[0][0])
    interfaces = interface_addresses()
    own = [address for found in addresses for address in found if address in interfaces and not is_loopback(address)]
    host = own[0] if own else routable_address(endpoints)  # the address that an endpoint names is the one to go by
    return Address(host, host)


def setup(
    options: Options, where: Address, environ: Mapping[str, str], trace: str, written: Command | None = None
) -> Setup:
    """What the agent is started with.

    Args:
        trace: the file that is traced to.
        written: whose source other nodes must have, too; None: that of the command.
    """
    command = options.command
    return Setup(
        job=options.job_id,
        node=node_name(options),
        host=where.host,
        bind=where.bind,
        nproc=options.nproc,
        adapter=options.adapter,
        command=worker_command(command),
        environment=inherited(environ),
        terms=terms(options, written),
        lease_ttl=options.timing.lease_ttl,
        shutdown_timeout=options.shutdown_timeout,
        signals=heeded(options.signals),
        role=options.role,
        node_role=options.node_role,
        commands={name: worker_command(each) for name, each in _own_commands(options).items()},
        topology=options.topology,
        node_rank=options.node_rank,
        virtual_local_rank=options.virtual_local_rank,
        python=command.python,
        keep_detached=options.keep_detached,
        recipe=recipe(options, environ, trace),
    )


def terms(options: Options, written: Command | None = None) -> Terms:
    """What the job's master needs, wherever it runs; `written`: as for `setup`."""
    command = options.command
    own = _own_commands(options)
    fingerprint = Fingerprint(
        script=command.target if command.kind != "script" else os.path.normpath(command.target),
        arguments=command.args,
        nnodes=str(options.nodes),
        nproc_per_node=options.nproc_spec,
        version=VERSION,
        framework=options.adapter.name,
        source=()
        if options.job_id_given or options.store.kind == "memory"
        else tuple(dict.fromkeys(line for each in (written or command, *own.values()) for line in digests(each))),
        roles=roles.canonical(options.roles),
    )
    return Terms(
        policy=options.policy,
        max_restarts=options.max_restarts,
        same_failure_limit=options.same_failure_limit,
        fingerprint=fingerprint,
        farewell_seconds=options.timing.close_timeout,
    )


def _workers_here(count: int) -> str:
    return f"{count} worker{'s' if count > 1 else ''} here"


def _own_commands(options: Options) -> dict[str, Command]:
    """By role, of those that have one of their own."""
    return {role.name: options.command_of(role) for role in options.roles if role.command}


async def run(
    options: Options,
    environ: Mapping[str, str],
    entered: float | None = None,
    early: "tuple[str, Seed] | None" = None,
    written: Command | None = None,
) -> Result:
    """Takes this machine's part in the job, and prints how it ended. Raises UsageError where it cannot even begin.

    Args:
        options: what was asked for.
        environ: what the workers inherit.
        entered: when the command line was begun to be read, in monotonic seconds; None: there was none.
        early: what was begun before (`early.begin`).
        written: as for `setup`.
    """
    with all_allowed() as files:
        return await _run(options, environ, entered, early, written, files)


async def _run(
    options: Options,
    environ: Mapping[str, str],
    entered: float | None,
    early: "tuple[str, Seed] | None",
    written: Command | None,
    files: int,
) -> Result:
    output = _begun(options, early)
    asyncio.get_running_loop().set_exception_handler(_full_once(output))
    succeeded = False
    machine = RealMachine(output, early, files, alone=entered is not None)
    trace = trace_of(options, output.say)
    if entered is not None:
        recording.begin(trace, entered)
    try:
        for note in options.notes:
            output.say(note)
        endpoints = endpoints_of(options)
        try:
            where = address_of(options, endpoints)
        except Unreachable as error:
            output.say(str(error))
            return Result(plan.REFUSED, str(error), None, "", (), Timeline(asyncio.get_running_loop().time()))
        agent_setup = setup(options, where, environ, trace.file or "", written)
        # Among others it may get another name, and the agent prints that when it has registered.
        name = f"; this node is {agent_setup.node}" if agent_setup.bind is None else ""
        least, most = options.nprocs[0], options.nprocs[-1]
        workers = f"{least} to {most} workers here, as its role has" if least < most else _workers_here(most)
        output.say(
            f"job {options.job_id}: {options.nodes} node{'s' if options.nodes.maximum > 1 else ''}, {workers}{name}"
        )
        if output.temporary:
            output.say(f"complete logs are in {output.root} (--log-dir selects another folder)")
        result = await _take_part(options, endpoints, agent_setup, machine, output, trace)
        succeeded = result.code == plan.SUCCEEDED
        trace.instant("exit", AGENT, code=result.code, reason=result.reason)
        for line in last_lines(options, result, where.host):
            output.say(line)
        if options.output.summary_json:
            try:
                write_json(options.output.summary_json, options, result)
            except OSError as error:
                output.say(f"the summary could not be written: {error}")
        return result
    finally:
        machine.close()
        trace.close()
        with _hurried_by(options.signals) as hurry:
            await output.close(succeeded=succeeded, hurry=hurry)


async def _take_part(
    options: Options,
    endpoints: tuple[Endpoint, ...],
    agent_setup: Setup,
    machine: RealMachine,
    output: Output,
    trace: Trace,
) -> Result:
    begun = asyncio.get_running_loop().time()
    told: list[int] = []
    agent: Agent | None = None
    try:
        with ended_by(options.signals, told):
            where = Address(agent_setup.host, agent_setup.bind)
            async with store_of(options, endpoints, where, output.say) as store:
                trace.since(begun, "store", AGENT, kind=options.store.kind)
                agent = Agent(agent_setup, store, output, machine, trace)
                return await agent.run()
    except asyncio.CancelledError:
        if not told:
            raise
        code, reason = 128 + told[0], f"{signal.Signals(told[0]).name} arrived while this node waited for the store"
    except RendezvousError as error:
        code, reason = code_of(error), str(error)
    if agent:
        agent.timeline.ended(asyncio.get_running_loop().time())
        return agent.result(code, reason)
    return Result(code, reason, None, agent_setup.node, (), Timeline(begun))


def _full_once(
    output: Output,
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:  # Any: the loop's own signature
    """What the event loop does with errors that nobody takes: a full descriptor table is said once, in one line.

    By itself it prints a hundred tracebacks a second while a connection waits that cannot be accepted.
    """
    told = False

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal told
        error = context.get("exception")
        full = isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
        if not full or "socket" not in context:  # which is there where a connection could not be accepted
            loop.default_exception_handler(context)
        elif not told:
            told = True
            output.say(
                f"this agent can open no more files ({os.strerror(errno.EMFILE).lower()}): a higher ulimit -n may help"
            )

    return handle


@contextlib.contextmanager
def ended_by(signals: Iterable[signal.Signals], told: list[int]) -> Generator[None]:
    """Until the agent handles these signals itself, the first of them ends the running task."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def end(number: int) -> None:
        told.append(number)
        task.cancel()

    taken = heeded(signals)
    for number in taken:
        loop.add_signal_handler(number, end, number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _hurried_by(signals: Iterable[signal.Signals]) -> Generator[asyncio.Event]:
    """An event that is set by the first of these signals; one that repeats the preemption notice does not count."""
    loop, hurry = asyncio.get_running_loop(), asyncio.Event()
    begun, taken = loop.time(), heeded(signals)

    def told() -> None:
        if loop.time() - begun >= REPEAT_SECONDS:
            hurry.set()

    for number in taken:
        loop.add_signal_handler(number, told)
    try:
        yield hurry
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


def endpoints_of(options: Options) -> tuple[Endpoint, ...]:
    """Where the store is; this machine where several nodes and no endpoint are given."""
    if options.store.kind == "implicit" and not options.store.endpoints:
        return (Endpoint(options.local_addr or routable_address(()), options.store.port),)
    return options.store.endpoints


@contextlib.asynccontextmanager
async def store_of(
    options: Options, endpoints: tuple[Endpoint, ...], where: Address, say: Callable[[str], None]
) -> AsyncGenerator[Store]:
    """The job's store, ready to be asked; an embedded etcd is started where an endpoint wants one."""
    if options.store.kind == "memory":
        memory = MemoryStore()
        try:
            yield memory
        finally:
            await memory.close()
        return
    # grpc's own lines say again, a hundred times, what the store's errors say; workers have their environment already.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Here, because a job of one node has no use for grpc, nor for an etcd.
    from ..rendezvous.store.embedded import local_member

    text = ",".join(map(str, endpoints))
    if options.local_addr and not set(resolve(options.local_addr)) & interface_addresses():
        say(f"--local-addr={options.local_addr} is not an address of this machine: listening on every interface")
    if options.store.kind == "implicit" and not options.store.endpoints:
        say(f"no --rdzv-endpoint is given: the rendezvous endpoint is {text}. Run this on the other machines:")
        say(f"  {join_command(options, text)}")
    if where.bind is not None and not is_loopback(where.bind):
        say(f"traffic between the nodes of this job is not encrypted yet (it uses {where.host})")
    credentials = options.store.credentials
    deadline = asyncio.get_running_loop().time() + options.timing.join_timeout
    loading = asyncio.create_task(asyncio.to_thread(_etcd_store), name="import grpc")  # beside the start of an etcd
    try:
        hosting = await local_member.ensure(
            endpoints, directory=options.store.directory, announce=say, deadline=deadline
        )
        store_class = await loading
    except StoreUnavailable as error:
        raise NobodyAnswered(str(error)) from None
    finally:
        loading.cancel()
    for note in hosting.notes:
        say(note)
    try:
        store = store_class(
            [str(endpoint) for endpoint in endpoints],
            tls=_tls(credentials),
            credentials=_user(credentials),
        )
        try:
            _refuse_old((await store.status()).version, text)
            looking = asyncio.create_task(_look_after(hosting.local, store, say), name="look after the store")
            try:
                yield store
            finally:
                looking.cancel()
                await asyncio.wait({looking})
        finally:
            await store.close()
    finally:
        hosting.release()


async def _look_after(local: "Kept | None", store: Store, say: Callable[[str], None]) -> None:
    from ..rendezvous.store.embedded import watchdog

    try:
        if local is not None:
            await watchdog.look_after(local, store, say)
    except* Exception as errors:  # noqa: BLE001  the edge of this task: the job goes on without it
        say(f"the store's etcd on this machine is no longer monitored: {errors.exceptions[0]!r}")


def _etcd_store() -> "type[EtcdStore]":
    from ..rendezvous.store.etcd.etcd_store import EtcdStore

    return EtcdStore


def _user(credentials: Credentials) -> "EtcdUser | None":
    from ..rendezvous.store.etcd.etcd_store import Credentials as EtcdUser

    return EtcdUser(credentials.user, credentials.password) if credentials.user else None


def _tls(credentials: Credentials) -> "Tls | None":
    from ..rendezvous.store.etcd.etcd_store import Tls

    if not credentials.tls:
        return None
    files = (credentials.cacert, credentials.cert, credentials.key)
    ca, cert, key = (None if file is None else str(file) for file in files)
    return Tls(ca, cert, key)


def _refuse_old(version: str, where: str) -> None:
    from ..rendezvous.store.embedded.binary import OLDEST, EtcdTooOld

    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise EtcdTooOld(
            f"the etcd at {where} is {version}, and at least {OLDEST[0]}.{OLDEST[1]} is needed: "
            "upgrade it, or name another with --rdzv-endpoint"
        )


def code_of(error: RendezvousError) -> int:
    """The exit code where this is why nothing was begun."""
    if isinstance(error, Unreachable | NoUsableEtcd):
        return plan.REFUSED
    return plan.TIMEOUT if isinstance(error, NobodyAnswered) else plan.STORE_LOST


def trace_of(options: Options, say: Callable[[str], None]) -> Trace:
    """Where this process records what it does."""
    file = options.output.trace
    if file is None:
        return Trace()
    with contextlib.suppress(OSError):  # whoever opens the file in it says so
        file.parent.mkdir(parents=True, exist_ok=True)
    return Trace(str(file), node_name(options), say, create=True)


def _begun(options: Options, early: "tuple[str, Seed] | None") -> Output:
    """The output, before anything else is begun. Raises UsageError where this machine has no room for it."""
    from .flags import UsageError

    try:
        output = _output(options)
        output.begin()
        return output
    except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
        if early is not None:
            early[1].close()
        if isinstance(error, RuntimeError):
            raise UsageError(f"cannot start a thread ({error}): raise the limit of processes, see ulimit -u") from None
        raise UsageError(
            f"cannot create a folder for the logs ({error}): make room there, or name another with --log-dir, or with "
            "TMPDIR where that is not given"
        ) from None


def _output(options: Options) -> Output:
    wanted = options.output
    return Output(
        host=node_name(options),
        log_dir=wanted.log_dir,
        job_id=options.job_id,
        color={
            "stdout": _is_coloured(wanted.color, sys.stdout),
            "stderr": _is_coloured(wanted.color, sys.stderr),
        },
        redirects={rank: int(std) for rank, std in enumerate(wanted.redirects)},
        tee={rank: int(std) for rank, std in enumerate(wanted.tee)},
        line_prefix=_line_prefix(wanted.line_prefix, options.role),
        local_ranks_filter=wanted.shown_ranks,
        duplicate_stdout_filters=wanted.stdout_filters,
        duplicate_stderr_filters=wanted.stderr_filters,
        keep_attempts=wanted.keep_attempts,
        stream_out=_binary(sys.stdout),
        stream_err=_binary(sys.stderr),
    )


def _line_prefix(template: str | None, role: str) -> Callable[[int, int], str] | None:
    """Torchrun's template for the beginning of a worker's lines, by rank and local rank."""
    if template is None:
        return None
    from string import Template  # here, because hardly anybody gives one

    host = socket.gethostname()
    return lambda rank, local_rank: Template(template).safe_substitute(
        role_name=role, rank=rank, local_rank=local_rank, hostname=host
    )


def _is_coloured(choice: Literal["auto", "always", "never"], stream: TextIO | None) -> bool:
    return choice == "always" or (choice == "auto" and stream is not None and stream.isatty())


def _binary(stream: TextIO | None) -> BinaryIO:
    """The bytes below a standard stream; where it was closed before the start (`>&-`), nowhere."""
    return Path(os.devnull).open("wb") if stream is None else stream.buffer


def main(options: Options, entered: float, early: "tuple[str, Seed] | None") -> int:
    """Runs the job's part on this machine in an event loop of its own; `entered`, `early`: see `run`."""
    return asyncio.run(run(options, dict(os.environ), entered, early)).code
