"""A worker that does what the test says, when the test says it: no script has to guess with sleeps.

It connects to the test, tells who it is, and then runs each Python statement that it is sent. Other scripts import it
for `connect`, to tell the test how far they are and to be held at a point.
"""

import json
import os
import socket
import sys
from typing import Any

TOLD = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "ROLE_NAME",
)


class Strings:
    """The connection to the test."""

    def __init__(self) -> None:
        host, port = os.environ["PUPPET"].rsplit(":", 1)
        self._lines = socket.create_connection((host, int(port))).makefile("rw", encoding="utf-8")
        hello: dict[str, Any] = {name: os.environ.get(name, "") for name in TOLD}
        hello["pid"] = os.getpid()
        hello["node"] = os.environ["PUPPET_NODE"]
        hello["round"] = int(os.environ["ELASTIC_RUN_ROUND"])
        self._send(hello)

    def say(self, text: str) -> None:
        """The test can wait for `text`."""
        self._send({"said": text})

    def obey(self, names: dict[str, Any]) -> None:
        """Runs what the test sends, with `names` as globals, until the statement `go`, or the test has gone."""
        while line := self._lines.readline():
            statement = json.loads(line)
            if statement == "go":
                return
            exec(statement, names)
            self._send({"did": statement})
        os._exit(70)  # the test is gone: leave nothing behind

    def hold(self, text: str) -> None:
        """Says `text` and waits until the test sends `go`."""
        self.say(text)
        self.obey(globals())

    def _send(self, value: object) -> None:
        self._lines.write(json.dumps(value) + "\n")
        self._lines.flush()


def connect() -> Strings:
    """Tells the test that this worker is there."""
    return Strings()


if __name__ == "__main__":
    strings = connect()
    rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
    print(f"rank {rank} of {world} is there", flush=True)
    strings.obey(globals())
    sys.exit(0)
