"""Where the output goes: logs, prefixes, the summary, the trace."""

import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, cast
from urllib.parse import urlsplit

from ...rendezvous.host.named_files import open_to_read
from ...rendezvous.store.endpoint import Endpoint, is_local, loopback_address
from ..errors import UsageError
from ..settings import Output, Std
from .flags import OTLP_HERE, Scanned
from .preflight import check_writable_file
from .values import folder_of, whole

LINE_PREFIX = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
"""Torchrun's other name of `--log-line-prefix-template`, which comes first."""


def read_output(scanned: Scanned, nproc: int, environ: Mapping[str, str]) -> Output:
    color = cast(Literal["auto", "always", "never"], scanned.text("color"))  # one of the table's choices
    if color == "auto" and environ.get("NO_COLOR"):
        color = "never"
    shown: frozenset[int] | None = None
    if text := scanned.text("local-ranks-filter"):
        if not re.fullmatch(r"\s*[0-9]+\s*(,\s*[0-9]+\s*)*", text):
            source = scanned.source("local-ranks-filter")
            raise UsageError(f"{source} is not a list of local ranks: write for example 0,1")
        shown = frozenset(int(rank) for rank in text.split(","))
    raw = scanned.has("no-prefix")
    if raw and nproc > 1 and len(shown or range(nproc)) > 1:
        raise UsageError(
            f"--no-prefix shows one worker's output as it is, and this node has {nproc}: choose one of them with "
            "--local-ranks-filter=0, or leave --no-prefix out"
        )
    if raw and scanned.has("log-line-prefix-template"):
        raise UsageError("--no-prefix and --log-line-prefix-template exclude each other: leave out one of them")
    summary = scanned.text("summary-json")
    if summary is not None:
        check_writable_file(Path(summary), scanned.source("summary-json"))
    return Output(
        log_dir=folder_of(scanned, "log-dir"),
        keep_attempts=whole(scanned, "keep-attempts", 0),
        redirects=_streams(scanned, "redirects", nproc),
        tee=_streams(scanned, "tee", nproc),
        line_prefix=scanned.text("log-line-prefix-template") or environ.get(LINE_PREFIX) or None,
        raw=raw,
        shown_ranks=shown,
        stdout_filters=_words(scanned, "duplicate-stdout-filters"),
        stderr_filters=_words(scanned, "duplicate-stderr-filters"),
        summary_json=Path(summary) if summary is not None else None,
        trace=_trace(scanned),
        history=folder_of(scanned, "history"),
        dashboard=_dashboard(scanned),
        otlp=_otlp(scanned),
        log_format=cast(Literal["text", "json"], scanned.text("log-format")),  # as above
        log_timestamps=scanned.has("log-timestamps"),
        live_line=scanned.text("live-line") != "never" and environ.get("TERM") != "dumb",
        color=color,
    )


def _trace(scanned: Scanned) -> Path | None:
    """The file, from the root: workers may change their folder. One that holds something else is not added to."""
    text = scanned.text("trace")
    if text is None:
        return None
    path, source = Path(text).absolute(), scanned.source("trace")
    check_writable_file(path, source)
    with suppress(OSError), open_to_read(path) as file:
        if file.read(1) not in (b"", b"["):
            raise UsageError(f"{source} is not a trace file: name another file")
    return path


def _dashboard(scanned: Scanned) -> Endpoint | None:
    """Where it is served; port 0: a free one."""
    text = scanned.text("dashboard")
    if text is None:
        return None
    if text == "loopback:0":  # the flag has no value
        return Endpoint(loopback_address(), 0)
    source = scanned.source("dashboard")
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise UsageError(f"{source} is not HOST:PORT: write for example --dashboard=127.0.0.1:8080")
    if host not in ("0.0.0.0", "::") and not is_local(host):
        raise UsageError(f"{source}: {host} is not an address of this machine")
    return Endpoint(host, int(port))


def _otlp(scanned: Scanned) -> str | None:
    """The collector's URL; empty: what OpenTelemetry's own variables say."""
    text = scanned.text("otlp")
    if text is None:
        return None
    source = scanned.source("otlp")
    text = "" if text == OTLP_HERE else text
    if text and not _is_url(text):
        raise UsageError(f"{source} is not the URL of a collector: write for example --otlp=http://127.0.0.1:4318")
    try:
        known = find_spec("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ModuleNotFoundError:
        known = None
    if known is None:
        raise UsageError(f"{source} needs the packages of OpenTelemetry: pip install 'elastic-run[otlp]'")
    return text


def _is_url(text: str) -> bool:
    """Of HTTP, with a host."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and text.isprintable()
    except ValueError:  # of brackets without their ends, and of a port
        return False


def _streams(scanned: Scanned, name: str, nproc: int) -> tuple[Std, ...]:
    """Which streams, by local rank; ranks that a map leaves out have none."""
    text = (scanned.text(name) or "").strip()
    if re.fullmatch(r"[0-3]", text):
        return (Std(int(text)),) * nproc
    if not re.fullmatch(r"[0-9]+:[0-3](,[0-9]+:[0-3])*", text):
        raise UsageError(
            f"{scanned.source(name)} is neither 0, 1, 2 or 3 (none, stdout, stderr, both) nor a map from local ranks "
            "to them: write for example 3, or 0:1,1:2"
        )
    chosen = {int(rank): Std(int(std)) for rank, std in (pair.split(":") for pair in text.split(","))}
    return tuple(chosen.get(rank, Std.NONE) for rank in range(nproc))


def _words(scanned: Scanned, name: str) -> tuple[str, ...]:
    """A list with commas, in which two commas are one comma of a word."""
    text = scanned.text(name)
    return tuple(word.replace("\0", ",") for word in text.replace(",,", "\0").split(",") if word) if text else ()
