"""Every decoder of bytes from elsewhere: what it takes, and the one error that it may raise."""

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from elastic_run.adapters.client.channel import Back, Call
from elastic_run.adapters.horovod.messages import Unexpected, read_registration
from elastic_run.adapters.horovod.requests import BadRequest, parse_head
from elastic_run.elastic_agent.diagnosis.stacks import read as read_stack
from elastic_run.elastic_agent.workers.failure import read_failure
from elastic_run.launcher.cluster import request
from elastic_run.launcher.diagnostics import replay
from elastic_run.launcher.errors import UsageError
from elastic_run.launcher.goodput import marks
from elastic_run.launcher.options import config_file, flags
from elastic_run.launcher.report import command as report
from elastic_run.launcher.settings import Command
from elastic_run.launcher.source import digests
from elastic_run.launcher.trust import joined
from elastic_run.master.data.ledger import Answer, Request
from elastic_run.master.diagnosis.evidence import NodeEvidence
from elastic_run.master.diagnosis.requests import Condemned, Done, Look, Replacement
from elastic_run.master.status import Status
from elastic_run.rendezvous.failure_detector import parse
from elastic_run.rendezvous.header import Header, Leader
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import Secret
from elastic_run.rendezvous.member import Member
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.rpc.envelope import Answered, Asked, Hello, RpcError, met
from elastic_run.rendezvous.store.embedded import etcd_admin, folders
from elastic_run.rendezvous.store.embedded.etcd_admin import NotAnswered
from elastic_run.rendezvous.store.endpoint import MalformedEndpoint, parse_endpoints
from elastic_run.rendezvous.wire.frame import TooLong, take_frames
from elastic_run.rendezvous.wire.values import Malformed, decode

Decoder = Callable[[bytes], object]

VALUES = (
    *(Answer, Answered, Asked, Assignment, Back, Call, Header, Hello, Leader, Member, Request, Status),
    *(Condemned, Done, Look, Replacement, NodeEvidence),
)
"""Frozen dataclasses that are read from the store or from a port."""


def _text(read: Callable[[str], object], data: bytes) -> object:
    return read(data.decode("latin-1"))


def _value(kind: type, data: bytes) -> object:
    return decode(kind, data)


def _file(read: Callable[[Path], object], data: bytes) -> object:
    """What the start of a job, or a command, finds in a file."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        (file := Path(folder, "agent.pem")).write_bytes(data)
        file.chmod(0o600)
        return read(file)


def _identity(file: Path) -> object:
    return Identity(Secret(bytes(32)), cache=file.parent)


def _settings(file: Path) -> object:
    return config_file.completed(flags.scan([f"--config={file}", "t.py"], {}), file.parent)


def _page(file: Path) -> object:
    return report.main([str(file), "-o", str(file.with_name("page.html"))])


FILES: Mapping[str, Callable[[Path], object]] = {
    "a configuration file": _settings,
    "a pod's template": lambda file: request._template(str(file)),  # pyright: ignore[reportPrivateUsage]
    "a recorded history": lambda file: replay.main([str(file)]),
    "a node's history": _page,
    "a trace": marks.of_file,
    "a file to join with": lambda file: joined([str(file)], {}),
    "a script": lambda file: digests(Command("script", str(file), (), sys.executable)),
    "a kept certificate": _identity,
    "the log of an etcd": folders.last_lines,
}
"""What the start of a job, and commands, read by name."""

DECODERS: Mapping[str, tuple[Decoder, tuple[type[Exception], ...]]] = {
    **{kind.__name__: (partial(_value, kind), (Malformed,)) for kind in VALUES},
    "frames": (lambda data: list(take_frames(bytearray(data))), (TooLong,)),
    "first message": (met, (Malformed, RpcError)),
    "Horovod's registration": (read_registration, (Unexpected,)),
    "the head of a request to Horovod's store": (parse_head, (BadRequest,)),
    "what a failed worker printed": (lambda data: read_failure(data, data), ()),
    "what py-spy prints": (lambda data: read_stack(data, 1), ()),
    "an agent's address": (partial(_text, parse), (ValueError,)),
    **{name: (partial(_file, read), (UsageError,)) for name, read in FILES.items()},
    "flags": (lambda data: flags.scan(data.decode("latin-1").split(" "), {}), (UsageError,)),
    "an answer of etcd": (lambda data: etcd_admin._understood(b"HTTP/1.1 200 OK\r\n\r\n" + data), (NotAnswered,)),  # pyright: ignore[reportPrivateUsage]
    "endpoints": (partial(_text, parse_endpoints), (MalformedEndpoint,)),
}


def feed(name: str, data: bytes) -> None:
    """Has one of them read `data`. Raises what it must not raise."""
    decoder, errors = DECODERS[name]
    try:
        decoder(data)
    except errors:
        return
