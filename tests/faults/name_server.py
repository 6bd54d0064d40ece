"""A name server for one test: it answers late, or differently, or not at all.

with NameServer({"store.test": "127.0.0.1"}) as names:
    job.start("A", prefix=names.prefix)     # its resolv.conf names this server; root only
    names.hosts["store.test"] = "127.0.0.2" # from now on
    names.delay = 3.0                       # seconds before each answer
"""

import ipaddress
import random
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType

from .network import Unavailable

_HEAD = struct.Struct(">6H")
_ANSWERED, _NO_SUCH_NAME = 0x8180, 0x8183
_A, _IN = 1, 1
_TTL = 0
"""Seconds for which an answer may be kept."""


class NameServer:
    """Listens on an address of the loopback interface. Use as a context manager.

    Args:
        hosts: the addresses of names.
        folder: for its resolv.conf.

    Attributes:
        hosts: as given; may be changed.
        delay: seconds before each answer.
        asked: how often an address was asked for.

    Raises Unavailable where no such server can be had.
    """

    def __init__(self, hosts: dict[str, str], folder: Path) -> None:
        self.hosts = hosts
        self.delay = 0.0
        self.asked = 0
        self._folder = folder
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(0.2)
        self._address = f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "NameServer":
        try:
            self._socket.bind((self._address, 53))
        except OSError as error:
            self._socket.close()
            raise Unavailable(f"no name server can listen on {self._address}: {error}") from None
        (self._folder / "resolv.conf").write_text(f"nameserver {self._address}\noptions timeout:2 attempts:3\n")
        (self._folder / "nsswitch.conf").write_text("hosts: files dns\n")
        self._thread.start()
        tried = subprocess.run([*self.prefix, "true"], capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            self.__exit__(None, None, None)
            raise Unavailable(f"no mount namespace can be made: {tried.stderr.strip()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()

    @property
    def prefix(self) -> tuple[str, ...]:
        """Words before a command that is to ask this server."""
        binds = " && ".join(
            f"mount --bind '{self._folder / name}' /etc/{name}" for name in ("resolv.conf", "nsswitch.conf")
        )
        return ("unshare", "--mount", "sh", "-c", f'{binds} && exec "$@"', "sh")

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                asked, who = self._socket.recvfrom(4096)
            except TimeoutError:
                continue
            threading.Thread(target=self._answer, args=(asked, who), daemon=True).start()

    def _answer(self, asked: bytes, who: tuple[str, int]) -> None:
        delay, number = self.delay, _HEAD.unpack_from(asked)[0]
        labels: list[str] = []
        at = _HEAD.size
        while length := asked[at]:
            labels.append(asked[at + 1 : at + 1 + length].decode("latin-1"))
            at += 1 + length
        (kind,) = struct.unpack_from(">H", asked, at + 1)
        question = asked[_HEAD.size : at + 5]
        host = self.hosts.get(".".join(labels).lower())
        self.asked += kind == _A
        time.sleep(delay)
        records = b""
        if host is not None and kind == _A:
            packed = ipaddress.IPv4Address(host).packed
            records = struct.pack(">HHHIH", 0xC00C, _A, _IN, _TTL, len(packed)) + packed
        flags = _NO_SUCH_NAME if host is None else _ANSWERED
        answer = _HEAD.pack(number, flags, 1, 1 if records else 0, 0, 0) + question + records
        try:
            self._socket.sendto(answer, who)
        except OSError:
            return  # closed meanwhile
