"""Wires one agent: from what was asked for to a store, an agent and what a person reads at the end."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TextIO

from ..adapters.environment import WorkerSettings
from ..elastic_agent import agent_trace as recording
from ..elastic_agent.agent import Agent, Result
from ..elastic_agent.local_machine import RealMachine
from ..elastic_agent.logs.output import LEAVING_READER_SECONDS, READER_SECONDS, Output
from ..elastic_agent.logs.own_lines import OwnLines
from ..elastic_agent.logs.routes import StreamRoutes
from ..elastic_agent.machine import plan
from ..elastic_agent.machine.agent_machine import REPEAT_SECONDS
from ..elastic_agent.node.preemption import heed_no_more
from ..elastic_agent.setup import Setup
from ..elastic_agent.timeline import Timeline
from ..master.machine.controller import Terms
from ..rendezvous.base.cancel import running
from ..rendezvous.base.errors import NoThreads, NoUsableEtcd, OtherSecret, RendezvousError, Sealed
from ..rendezvous.base.plural import plural
from ..rendezvous.base.threads import Threads, call_from_thread
from ..rendezvous.host.process_limits import all_allowed
from ..rendezvous.host.trace_file import AGENT, Later, Sink, Trace
from ..rendezvous.identity.secret import NoIdentity
from ..rendezvous.keys import Keys
from ..rendezvous.member import Fingerprint
from ..rendezvous.store.endpoint import Endpoint
from ..rendezvous.time_split import Split
from ..rendezvous.version import VERSION
from .address import Address, Unreachable, address_of, endpoints_of
from .console import say
from .early import ETCD_PASSWORD, heeded, node_name, recipe
from .later import load_later
from .options import roles
from .settings import Command, Options
from .store_access import NobodyAnswered, store_of
from .trust import concealed, identity_of, mark, protected, security

if TYPE_CHECKING:
    from ..elastic_agent.hosting import Host
    from ..elastic_agent.zygotes.seed import Seed
    from ..master.beside import BesideMaster
    from ..rendezvous.identity.contexts import Identity
    from .history.journal import Journal
    from .telemetry.export import Exporter

TRACE_SECONDS = 30.0
"""For a trace to be read at the end: its disk may hang."""


def setup(
    options: Options,
    workers: WorkerSettings,
    where: Address,
    written: Command | None = None,
    identity: "Identity | None" = None,
) -> Setup:
    """What the agent is started with.

    Args:
        workers: what its workers have in common.
        written: whose source other nodes must have, too; None: that of the command.
        identity: what this node proves itself with.
    """
    return Setup(
        workers=workers,
        host=where.host,
        bind=where.bind,
        nproc=options.nproc,
        terms=terms(options, written, identity),
        lease_ttl=options.timing.lease_ttl,
        shutdown_timeout=options.shutdown_timeout,
        grace_after_failure=options.grace_after_failure,
        node_role=options.node_role,
        topology=options.topology,
        node_rank=options.node_rank,
        keep_detached=options.keep_detached,
        recipe=recipe(options, workers),
        security=security(identity),
        hang_timeout=options.hang_timeout,
        beside=beside_master(options),
    )


def beside_master(options: Options) -> "tuple[BesideMaster, ...]":
    """What else the job wants done where its master runs."""
    if options.servers is None:
        return ()
    from .servers import make_keepers  # here, because few jobs have servers

    return make_keepers(options.servers, options.job_id, options.nodes.minimum)


def terms(options: Options, written: Command | None = None, identity: "Identity | None" = None) -> Terms:
    """What the job's master needs, wherever it runs; `written`, `identity`: as for `setup`."""
    command, own = options.command, [options.command_of(role) for role in options.roles if role.command]
    source = tuple[str, ...]()
    if not options.job_id_given and options.store.kind != "memory":
        from .source import digests  # here, because a job of one node has nobody to compare them with

        source = tuple(dict.fromkeys(line for each in (written or command, *own) for line in digests(each)))
    fingerprint = Fingerprint(
        script=command.target if command.kind != "script" else os.path.normpath(command.target),
        arguments=concealed(command.args, identity),
        nnodes=str(options.nodes),
        nproc_per_node=options.nproc_spec,
        version=VERSION,
        framework=options.adapter.name,
        source=source,
        roles=roles.canonical(options.roles),
        identity="" if options.store.kind == "memory" else mark(options.trust, identity),
        named=options.job_id_given,
        servers=str(options.servers or ""),
    )
    return Terms(
        policy=options.policy,
        max_restarts=options.max_restarts,
        same_failure_limit=options.same_failure_limit,
        own_failure_limit=options.own_failure_limit,
        on_hang=options.on_hang,
        on_straggler=options.on_straggler,
        compare_after=options.hang_timeout,
        plan=options.plan,
        fingerprint=fingerprint,
        farewell_seconds=options.timing.close_timeout,
    )


async def run(
    options: Options,
    workers: WorkerSettings,
    entered: float | None = None,
    early: "tuple[str, Seed] | None" = None,
    written: Command | None = None,
) -> Result:
    """Takes this machine's part in the job, and prints how it ended. Raises UsageError where it cannot even begin.

    Args:
        workers: what its workers have in common.
        entered: when the command line was begun to be read, in monotonic seconds; None: there was none.
        early: what was begun before (`early.begin`).
        written: as for `setup`.
    """
    told: list[int] = []
    with all_allowed() as limits, _handled(options.signals, told.append):
        result = await _run(options, workers, entered, early, written, limits, told)
    if result.code != plan.SUCCEEDED and (file := os.environ.get("TORCHELASTIC_ERROR_FILE")):
        from .summary import write_error  # here, as in `_run`

        try:
            write_error(Path(file), result, time.time())
        except OSError as error:
            say(f"TORCHELASTIC_ERROR_FILE={file} could not be written: {error}")
    signal.pthread_sigmask(signal.SIG_BLOCK, heeded(options.signals))  # the loop's end makes their action the default
    return result


async def _run(
    options: Options,
    workers: WorkerSettings,
    entered: float | None,
    early: "tuple[str, Seed] | None",
    written: Command | None,
    limits: tuple[int, int],
    told: list[int],
) -> Result:
    output, telemetry = _begun(options, early)
    succeeded, patience = False, READER_SECONDS
    machine = RealMachine(output, early, limits, alone=entered is not None)
    trace = trace_of(options, output.say, telemetry, output.later)
    if entered is not None:
        recording.begin(trace, entered)
    try:
        for note in options.notes:
            output.say(note)
        endpoints = endpoints_of(options)
        try:
            where = address_of(options, endpoints)
            identity = identity_of(options.trust, endpoints, output.say) if options.store.kind != "memory" else None
        except (Unreachable, NoIdentity) as error:
            output.say(str(error))
            return Result(plan.REFUSED, str(error), None, "", (), Timeline(asyncio.get_running_loop().time()))
        endpoints = protected(endpoints, identity)
        if trace.file is None:  # it could not be opened
            workers = replace(workers, told=replace(workers.told, trace=""))
        agent_setup = setup(options, workers, where, written, identity)
        # Among others it may get another name, and the agent prints that when it has registered.
        name = f"; this node is {agent_setup.workers.node}" if agent_setup.bind is None else ""
        least, most = options.nprocs[0], options.nprocs[-1]
        own = plural(most, "worker")
        here = f"{least} to {most} workers here, depending on its role" if least < most else f"{own} here"
        output.say(
            f"job {options.job_id}: {options.nodes} node{'s' if options.nodes.maximum > 1 else ''}, {here}{name}"
        )
        if output.temporary:
            output.say(f"complete logs are in {output.root} (--log-dir selects another folder)")
        journal: Journal | None = None
        if options.output.history is not None or options.output.dashboard is not None:
            from .history.attach import journal_of  # here, because few ask for it

            journal = journal_of(options, agent_setup, output.say)
        try:
            begun = time.monotonic() if entered is None else entered
            result = await _take_part(
                options, endpoints, agent_setup, begun, machine, output, trace, identity, journal, told
            )
            if journal:
                journal.over(result.code, result.reason)
        finally:
            if journal:
                await asyncio.to_thread(journal.close)
        succeeded = result.code == plan.SUCCEEDED
        if result.code >= 128:  # a signal told it to leave
            patience = LEAVING_READER_SECONDS
        from .summary import last_lines, write_json  # here, because workers start the sooner

        trace.instant("exit", AGENT, code=result.code, reason=result.reason)
        split = await _spent(options, result, output)
        for line in last_lines(options, result, where.host, split):
            output.say(line)
        if options.output.summary_json:
            try:
                write_json(options.output.summary_json, options, result, split)
            except OSError as error:
                output.say(f"the summary could not be written: {error}")
        return result
    finally:
        machine.close()
        trace.close()
        if telemetry:
            await asyncio.to_thread(telemetry.close)
        with _hurried_by(options.signals) as hurry:
            await output.close(succeeded=succeeded, seconds=patience, hurry=hurry)


async def _take_part(
    options: Options,
    endpoints: tuple[Endpoint, ...],
    agent_setup: Setup,
    entered: float,
    machine: RealMachine,
    output: Output,
    trace: Trace,
    identity: "Identity | None",
    journal: "Journal | None",
    told: list[int],
) -> Result:
    begun, shared = asyncio.get_running_loop().time(), options.store.kind != "memory"
    agent: Agent | None = None
    try:
        with ended_by(options.signals, told):
            where = Address(agent_setup.host, agent_setup.bind)
            async with store_of(options, endpoints, where, output.say, identity) as store:
                trace.since(begun, "store", AGENT, kind=options.store.kind)
                if options.node_check:
                    from .node_check.check import check  # here, because few ask for it

                    if why := await check(options, where, endpoints_of(options), store, dict(os.environ), output.say):
                        return Result(plan.REFUSED, why, None, agent_setup.workers.node, (), Timeline(begun))
                keys, node = Keys(options.job_id), agent_setup.workers.node
                if shared:
                    from . import finished  # here, because a job of one node leaves no note

                    known = await finished.runs_before(store, keys, node, entered)
                    agent_setup = replace(agent_setup, known_runs=known)
                host: Host | None = None
                if options.servers is not None:
                    from .servers import host_servers  # here, because few jobs have servers

                    host = host_servers(options.servers, options.job_id, identity)
                agent = Agent(agent_setup, store, output, machine, trace, journal, host)
                async with contextlib.AsyncExitStack() as beside:
                    await beside.enter_async_context(running(load_later(), "load what is needed later"))
                    if journal is not None:
                        from .history.attach import following  # here, as in `_run`

                        await beside.enter_async_context(following(journal, agent, options, output.say))
                    if options.output.live_line and output.has_live_line:
                        from .terminal import live_line  # here, because few have a terminal

                        shown = live_line.keep(agent.job_status, output.live)
                        await beside.enter_async_context(running(shown, "live line"))
                    result = await agent.run()
                if shared and result.code == plan.SUCCEEDED and result.header:
                    from . import finished  # here, as above

                    await finished.note(store, keys, node, result.header.run, time.monotonic())
                return result
    except asyncio.CancelledError:
        if not told:
            raise
        code, reason = 128 + told[0], f"{signal.Signals(told[0]).name} arrived while this node waited for the store"
    except RendezvousError as error:
        code, reason = code_of(error), str(error)
    except RuntimeError as error:
        if not _lacks_threads(error):
            raise
        code, reason = plan.REFUSED, _no_thread(error)
    if agent:
        agent.timeline.down(asyncio.get_running_loop().time())
        return agent.result(code, reason)
    return Result(code, reason, None, agent_setup.workers.node, (), Timeline(begun))


async def _spent(options: Options, result: Result, output: Output) -> Split | None:
    """As `spent`: of a long trace it takes seconds, in which this process still takes the workers' last output."""
    from .summary import spent  # here, as in `_run`

    if not options.output.trace:
        return spent(options, result)
    await output.flush(TRACE_SECONDS / 10)
    try:
        return await Threads(1).run(lambda: spent(options, result), TRACE_SECONDS)
    except OSError as error:  # a TimeoutError is one
        output.say(f"without what the script says of its time: its trace cannot be read ({error or 'no answer'})")
        return spent(options, result, traced=False)


@contextlib.contextmanager
def ended_by(signals: Iterable[signal.Signals], told: list[int]) -> Generator[None]:
    """Until the agent handles these signals itself, the first of them, or one `told` before, ends the running task."""
    task = asyncio.current_task()
    assert task is not None
    if told:
        raise asyncio.CancelledError

    def end(number: int) -> None:
        told.append(number)
        task.cancel()

    with _handled(signals, end):
        yield


@contextlib.contextmanager
def _hurried_by(signals: Iterable[signal.Signals]) -> Generator[asyncio.Event]:
    """An event that is set by the first of these signals; one that repeats the preemption notice does not count."""
    loop, hurry = asyncio.get_running_loop(), asyncio.Event()
    begun = loop.time()

    def told(_: int) -> None:
        if loop.time() - begun >= REPEAT_SECONDS:
            hurry.set()

    with _handled(signals, told):
        yield hurry


@contextlib.contextmanager
def _handled(signals: Iterable[signal.Signals], handler: Callable[[int], None]) -> Generator[None]:
    loop, taken = asyncio.get_running_loop(), heeded(signals)
    for number in taken:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        heed_no_more(taken)


def code_of(error: RendezvousError) -> int:
    """The exit code where this is why nothing was begun."""
    if isinstance(error, Unreachable | NoUsableEtcd | NoIdentity | NoThreads | OtherSecret | Sealed):
        return plan.REFUSED
    return plan.TIMEOUT if isinstance(error, NobodyAnswered) else plan.STORE_LOST


def _lacks_threads(error: RuntimeError) -> bool:
    """The limit of processes is reached; Python has no error of its own for that."""
    return "start new thread" in str(error)


def _no_thread(error: RuntimeError) -> str:
    return f"cannot start a thread ({error}): raise the limit of processes (ulimit -u), or of memory (ulimit -v)"


def telemetry_of(options: Options, say: Callable[[str], None]) -> "Exporter | None":
    """What sends this process's recoveries to a collector; None where nobody wants that. Raises UsageError."""
    if options.output.otlp is None:
        return None
    from .errors import UsageError

    say_there = partial(call_from_thread, asyncio.get_running_loop(), say)
    url = options.output.otlp or None
    try:
        from .telemetry.export import Exporter  # here, because few ask for it

        return Exporter(url, options.job_id, node_name(options), socket.gethostname(), say_there)
    except ValueError as error:  # of its import, too
        raise UsageError(f"--otlp: OpenTelemetry cannot be set up from its variables: {error}") from None


def trace_of(
    options: Options, say: Callable[[str], None], sink: Sink | None = None, later: Later | None = None
) -> Trace:
    """Where this process records what it does."""
    file = options.output.trace
    if file is None:
        return Trace(sink=sink)
    with contextlib.suppress(OSError):  # whoever opens the file in it says so
        file.parent.mkdir(parents=True, exist_ok=True)
    return Trace(str(file), node_name(options), say, create=True, sink=sink, later=later)


def _begun(options: Options, early: "tuple[str, Seed] | None") -> "tuple[Output, Exporter | None]":
    """The output and what sends recoveries, before anything else is begun.

    Raises UsageError where this machine has no room for them, or OpenTelemetry refuses its variables.
    """
    from .errors import UsageError

    with contextlib.ExitStack() as undo:
        if early is not None:
            undo.callback(early[1].close)
        try:
            telemetry = telemetry_of(options, lambda line: output.say(line))  # which makes no files
            if telemetry is not None:
                undo.callback(telemetry.close)
            output = _output(options)
            output.begin()
        except RuntimeError as error:  # no thread can be started
            raise UsageError(_no_thread(error)) from None
        except OSError as error:
            raise UsageError(
                f"cannot create a folder for the logs ({error}): make room there, or name another with --log-dir, or "
                "with TMPDIR where that is not given"
            ) from None
        undo.pop_all()
        return output, telemetry


def _output(options: Options) -> Output:
    wanted = options.output
    return Output(
        host=node_name(options),
        log_dir=wanted.log_dir,
        job_id=options.job_id,
        routes=StreamRoutes(
            color=[name for name in ("stdout", "stderr") if _is_coloured(wanted.color, getattr(sys, name))],
            redirects=wanted.redirects,
            tee=wanted.tee,
            line_prefix=_line_prefix(wanted.line_prefix, options.role),
            shown_ranks=wanted.shown_ranks or (),
            stdout_needles=tuple(text.encode() for text in wanted.stdout_filters),
            stderr_needles=tuple(text.encode() for text in wanted.stderr_filters),
        ),
        raw=wanted.raw,
        keep_attempts=wanted.keep_attempts,
        own_lines=OwnLines(wanted.log_format, wanted.log_timestamps, options.job_id, node_name(options)),
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


def main(options: Options, workers: WorkerSettings, entered: float, early: "tuple[str, Seed] | None") -> int:
    """Runs the job's part on this machine in an event loop of its own; `workers`, `entered`, `early`: see `run`."""
    if password := os.environ.pop(ETCD_PASSWORD, ""):  # nothing that is started from now on inherits it
        from ..rendezvous.identity.scrub import scrub  # here, because few have one

        scrub(f"{ETCD_PASSWORD}={password}")
    runner = asyncio.Runner()
    try:
        return runner.run(run(options, workers, entered, early)).code
    finally:
        try:
            runner.close()
        except RuntimeError as error:  # it needs a thread to wait for the others, which have nothing to do any more
            if not _lacks_threads(error):
                raise
