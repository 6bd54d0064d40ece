"""Every decoder of bytes from elsewhere: what it takes, and the one error that it may raise."""

from collections.abc import Callable, Mapping
from functools import partial

from elastic_run.adapters.client.channel import Back, Call
from elastic_run.adapters.horovod.messages import Unexpected, read_registration
from elastic_run.adapters.horovod.requests import BadRequest, parse_head
from elastic_run.elastic_agent.diagnosis.stacks import read as read_stack
from elastic_run.elastic_agent.workers.failure import read_failure
from elastic_run.master.data.ledger import Answer, Request
from elastic_run.master.diagnosis.evidence import NodeEvidence
from elastic_run.master.diagnosis.requests import Condemned, Done, Look, Replacement
from elastic_run.master.status import Status
from elastic_run.rendezvous.failure_detector import parse
from elastic_run.rendezvous.header import Header, Leader
from elastic_run.rendezvous.member import Member
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.rpc.envelope import Answered, Asked, Hello, RpcError, met
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


DECODERS: Mapping[str, tuple[Decoder, tuple[type[Exception], ...]]] = {
    **{kind.__name__: (partial(_value, kind), (Malformed,)) for kind in VALUES},
    "frames": (lambda data: list(take_frames(bytearray(data))), (TooLong,)),
    "first message": (lambda data: met(data, "token"), (Malformed, RpcError)),
    "Horovod's registration": (read_registration, (Unexpected,)),
    "the head of a request to Horovod's store": (parse_head, (BadRequest,)),
    "what a failed worker printed": (lambda data: read_failure(data, data), ()),
    "what py-spy prints": (lambda data: read_stack(data, 1), ()),
    "an agent's address": (partial(_text, parse), (ValueError,)),
    "endpoints": (partial(_text, parse_endpoints), (MalformedEndpoint,)),
}


def feed(name: str, data: bytes) -> None:
    """Has one of them read `data`. Raises what it must not raise."""
    decoder, errors = DECODERS[name]
    try:
        decoder(data)
    except errors:
        return
