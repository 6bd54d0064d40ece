"""The heads of messages, and how a head and a body become one frame."""

from typing import TYPE_CHECKING, Annotated, Literal

from ..base.errors import RendezvousError
from ..base.frozen import dataclass, field
from ..wire.frame import PREFIX, framed, length_of
from ..wire.values import Text, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from ssl import SSLContext

VERSION = 1

Code = Literal["version", "malformed", "method", "role", "too long", "late", "moved", "failed"]
"""Why there is no answer.

version: whoever asks speaks another version of this protocol.
malformed: the message is not what it should be.
method: nobody answers that here.
role: an observer asks, who may not ask that.
too long: a message does not fit into a frame.
late: there was no answer within the request's seconds, or no whole first message in its time.
moved: this process does not lead the job (any more): find out who does, and ask there.
failed: answering raised an error that nobody expected; the process that answers has reported it.
"""

_Name = Annotated[str, Text(253, printable=True)]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Attributes:
        run: of the job; only who belongs to it knows its name.
        node, incarnation: the node, and which life of it.
        rank: of the worker that asks; None: no worker does.
    """

    run: _Name = ""
    node: _Name = ""
    incarnation: _Name = ""
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message on a connection."""

    caller: Caller
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Version:
    """What every version's first message has."""

    version: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The head of a request.

    Attributes:
        id: the asker's own, for this connection.
        seconds: how long an answer is of use, from the request's arrival on.
    """

    id: int
    method: Annotated[str, Text(100, printable=True)]
    seconds: float


@dataclass(frozen=True, slots=True)
class Answered:
    """The head of an answer; its body is empty where there is an `error`.

    Attributes:
        id: the request's; 0: this is about the connection.
        text: the error in words.
    """

    id: int
    error: Code | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Nothing:
    """A body that says nothing."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """An answer that is JSON already: many are given the same."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Security:
    """What two ends of a connection must agree on; by default neither is checked.

    Attributes:
        server, client: what TLS is spoken with by who listens and by who dials; None: no TLS.
        written: gives what these are made of, as it is now, for a process beside the workers that speaks to others of
            its kind (`identity.contexts.written_pair`); None: no TLS.
    """

    server: "SSLContext | None" = None
    client: "SSLContext | None" = None
    written: "Callable[[], Mapping[str, str]] | None" = field(default=None, repr=False, compare=False)


class RpcError(RendezvousError):
    """A request has an error for an answer.

    Attributes:
        code: which; see `Code`.
    """

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code: Code = code


def packed(head: object, body: bytes = b"") -> bytes:
    """One message as it goes on the stream. Raises TooLong."""
    return framed(encode(head) + b"\n" + body)


def asked(id: int, method: str, seconds: float, body: bytes) -> bytes:
    """A request on the stream, as `packed(Asked(id, method, seconds), body)`, in less time. Raises TooLong."""
    return framed(b'{"id":%d,"method":"%s","seconds":%r}\n%s' % (id, method.encode(), float(seconds), body))


def answered(id: int, body: bytes) -> bytes:
    """An answer on the stream, as `packed(Answered(id), body)`, in less time. Raises TooLong."""
    return framed(b'{"id":%d}\n%s' % (id, body))


def answer_begun(id: int, size: int) -> bytes:
    """What comes before a body of so many bytes: both together are `answered`. Raises TooLong."""
    head = b'{"id":%d}\n' % id
    return PREFIX.pack(length_of(len(head) + size)) + head


def unpacked(message: bytes) -> tuple[bytes, bytes]:
    """The head and the body of a frame, both still JSON."""
    head, _, body = message.partition(b"\n")
    return head, body


def answer_of(message: bytes) -> tuple[Answered, bytes]:
    """The head, and the body where it is no error. Raises Malformed."""
    head, body = unpacked(message)
    return decode(Answered, head), body


def met(message: bytes) -> Caller:
    """Who asks, by the first message of a connection. Raises Malformed, RpcError."""
    head, _ = unpacked(message)
    version = decode(Version, head).version
    if version != VERSION:
        raise RpcError("version", f"this process speaks version {VERSION} of the protocol, and not {version}")
    return decode(Hello, head).caller
