"""Sends recoveries to a collector of OpenTelemetry by OTLP over HTTP.

It is done in a thread of the library, from a queue that is bounded; what a slow collector does not take is dropped. A
collector that is gone is said once. The end of the job waits LAST seconds for what has not been sent, and no longer.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit, urlunsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Status, StatusCode, set_span_in_context

from ...rendezvous.version import VERSION
from .recovery import Event, Recoveries, Recovery

QUEUE = 2_048
"""Spans that wait for the collector; more are dropped."""

BATCH = 512
"""Spans of one message."""

EACH = 1.0
"""Seconds between two messages to it."""

PATIENCE = 5.0
"""Seconds for it to take one."""

LAST = 2.0
"""Seconds at the end of the job."""

PATH = "/v1/traces"

LOGGERS = ("opentelemetry.exporter.otlp", "opentelemetry.sdk")
"""They would print a traceback for each message that a collector does not take."""


class Exporter:
    """Takes the events of one node's trace (`Trace`'s sink).

    Args:
        url: of the collector; None: what the variables of OpenTelemetry say (OTEL_EXPORTER_OTLP_ENDPOINT), else this
            machine's port 4318.
        say: prints one line for a person, from any thread.

    Raises ValueError where a variable of OpenTelemetry cannot be understood, and RuntimeError without a thread.
    """

    def __init__(self, url: str | None, job: str, node: str, host: str, say: Callable[[str], None]) -> None:
        self._recoveries = Recoveries(job)
        # What the monotonic clock showed at the beginning of 1970, in nanoseconds.
        self._epoch = time.time_ns() - time.monotonic_ns()
        self._ids = _Ids()
        with ExitStack() as quiet:
            quiet.enter_context(_quiet())
            exporter = OTLPSpanExporter(endpoint=None if url is None else traces_url(url), timeout=PATIENCE)
            self._told = _Told(exporter, say)
            about = {"service.name": "elastic-run", "service.version": VERSION, "service.instance.id": node}
            resource = Resource.create({**about, "host.name": host, "elastic_run.job": job, "elastic_run.node": node})
            self._provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=self._ids)
            processor = BatchSpanProcessor(
                self._told,
                max_queue_size=QUEUE,
                max_export_batch_size=BATCH,
                schedule_delay_millis=EACH * 1000,
                export_timeout_millis=PATIENCE * 1000,
            )
            self._provider.add_span_processor(processor)
            self._tracer = self._provider.get_tracer("elastic_run", VERSION)
            self._quiet = quiet.pop_all()

    def __call__(self, name: str, row: str, begun: float, ended: float, args: dict[str, object]) -> None:
        """One event; at once, whatever the collector does."""
        if whole := self._recoveries.add(Event(name, row, begun, ended, _plain(args))):
            self._send(whole)

    def close(self) -> None:
        """Sends what is left; waits at most LAST seconds."""
        ending = threading.Thread(target=self._provider.shutdown, name="end of the traces", daemon=True)
        ending.start()
        ending.join(LAST)
        if ending.is_alive():
            self._told.lost(f"no answer within {LAST:g} s at the end of the job")
        self._quiet.close()

    def _send(self, whole: Recovery) -> None:
        self._ids.trace = int.from_bytes(whole.id) or 1
        root = self._tracer.start_span(whole.name, None, attributes=whole.args, start_time=self._unix(whole.begun))
        if problem := whole.args.get("problem"):
            root.set_status(Status(StatusCode.ERROR, str(problem)))
        parent = set_span_in_context(root)
        for each in whole.events:
            if each.ended <= each.begun:
                root.add_event(f"{each.row}: {each.name}", each.args, self._unix(each.begun))
                continue
            attributes = {**each.args, "row": each.row}
            span = self._tracer.start_span(each.name, parent, attributes=attributes, start_time=self._unix(each.begun))
            span.end(self._unix(each.ended))
        root.end(self._unix(whole.ended))

    def _unix(self, seconds: float) -> int:
        return self._epoch + round(seconds * 1e9)


class _Ids(RandomIdGenerator):
    """All nodes give a round's trace one id."""

    trace = 1

    def generate_trace_id(self) -> int:
        return self.trace


class _Told(SpanExporter):
    """Says once that the collector takes nothing."""

    def __init__(self, exporter: SpanExporter, say: Callable[[str], None]) -> None:
        self._exporter = exporter
        self._say = say
        self._told = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
            why = "" if result is SpanExportResult.SUCCESS else "it does not answer, or not as a collector"
        except Exception as error:  # noqa: BLE001  the library's own; an error here would end its thread
            result, why = SpanExportResult.FAILURE, str(error) or type(error).__name__
        if why:
            self.lost(why)
        return result

    def lost(self, why: str) -> None:
        """What was to be sent is not sent."""
        if not self._told:
            self._told = True
            self._say(f"--otlp: traces are lost: the collector does not take them ({why[:200]})")

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


@contextmanager
def _quiet() -> Generator[None]:
    """The library's own words about a collector are not printed meanwhile."""
    found = [logging.getLogger(name) for name in LOGGERS]
    before = [each.propagate for each in found]
    nowhere = logging.NullHandler()
    for each in found:
        each.addHandler(nowhere)
        each.propagate = False
    try:
        yield
    finally:
        for each, was in zip(found, before, strict=True):
            each.removeHandler(nowhere)
            each.propagate = was


def traces_url(url: str) -> str:
    """Where traces go; a URL without a path is that of a collector."""
    parts = urlsplit(url)
    return url if parts.path.strip("/") else urlunsplit((parts.scheme, parts.netloc, PATH, parts.query, ""))


def _plain(args: dict[str, object]) -> dict[str, str | int | float | bool]:
    return {
        key: value if isinstance(value, str | int | float | bool) else str(value)
        for key, value in args.items()
        if value is not None
    }
