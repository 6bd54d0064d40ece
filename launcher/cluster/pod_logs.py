# What the API says is plain JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What the pods of a job have printed: `elastic-job logs`."""

import argparse
import contextlib
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ...master.nodes.kubernetes import objects, pods
from ...master.nodes.platform import PlatformError, PlatformUnavailable
from ...rendezvous.base.visible import visible
from ..errors import UsageError
from .arguments import say
from .outage import Outage
from .progress import Waiting, job_of, status_of, until_over

if TYPE_CHECKING:
    from ...master.nodes.kubernetes.api import Api

LOG_PAUSE = 2.0
"""Seconds between two looks for pods that are new, and until a log that has broken off is taken up again."""

SILENCE = 60.0
"""Seconds after which a log without a line is taken up again: its connection may have died unnoticed."""

LAST_LINES = 10.0
"""Seconds to print what is left of the logs of a job that is over."""

ENDED = ("Succeeded", "Failed")
"""Phases of a pod whose log gets no further line."""


def logs(api: "Api", arguments: argparse.Namespace) -> int:
    tails = Tails(api, arguments.name, arguments.tail, master=arguments.master)
    if not arguments.follow:
        job_of(api, arguments.name)  # there is such a job
        tails.once()
        return 0
    while tails.outage.answer(lambda: job_of(api, arguments.name)) is None:
        time.sleep(LOG_PAUSE)

    def over() -> bool:
        try:
            return "exitCode" in status_of(api, arguments.name)
        except UsageError as error:  # it was deleted meanwhile
            say(str(error))
            return True

    tails.until(over)
    return 0


def follow(api: "Api", name: str) -> int:
    """What its nodes print, until it is over; its exit code."""
    waiting = Waiting(api, name)
    Tails(api, name, -1, master=False).until(lambda: "exitCode" in waiting.look())
    return until_over(api, name, None)


class PrintedLog:
    """How far a log is printed: one that is taken up again is asked for from a second on, and repeats some lines.

    By those lines themselves it goes on: several may have one time, and those of stdout and stderr may change places.
    """

    def __init__(self) -> None:
        self._newest: datetime | None = None
        self._lines: deque[tuple[datetime, bytes]] = deque()
        self._repeated: Counter[bytes] = Counter()

    def take_up(self) -> list[tuple[str, object]]:
        """What to ask for; empty where nothing was printed yet."""
        if self._newest is None:
            return []
        self._repeated = Counter(line for _, line in self._lines)
        return [("sinceTime", f"{(self._newest - timedelta(seconds=1)).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")]

    def text_of(self, line: bytes) -> bytes | None:
        """The line without its time; None: it was printed before."""
        stamp, _, text = line.partition(b" ")
        try:
            at = datetime.fromisoformat(stamp.decode())
            self._newest = max(at, self._newest or at.astimezone(UTC))
        except (ValueError, TypeError):  # the kubelet's own word
            return line
        if self._repeated[line] > 0:
            self._repeated[line] -= 1
            return None
        self._lines.append((at, line))
        while self._lines[0][0] < self._newest - timedelta(seconds=2):
            self._lines.popleft()
        return text


class Tails:
    """The output of a job's pods, as it comes, each line whole and once."""

    def __init__(self, api: "Api", name: str, tail: int, *, master: bool) -> None:
        self._api = api
        components = "node,master" if master else "node"
        self._query = [("labelSelector", f"{pods.JOB}={name},{objects.COMPONENT} in ({components})")]
        self._tail: list[tuple[str, object]] = [("tailLines", tail)] if tail >= 0 else []
        self.outage = Outage()
        self._ended: set[str] = set()
        self._threads: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()

    def once(self) -> None:
        """What there is."""
        for pod, container in self._pods().items():
            self._copy(pod, container, follow=False)

    def until(self, over: Callable[[], bool]) -> None:
        """Until the job is over, and everything is printed. Raises UsageError, PlatformError."""
        while not self.outage.answer(lambda: self._begin(over)):
            time.sleep(LOG_PAUSE)
        until = time.monotonic() + LAST_LINES
        for thread in self._threads.values():
            while thread.is_alive() and time.monotonic() < until:
                with contextlib.suppress(PlatformError):
                    self._pods()  # a log is printed whole when its pod is seen to have ended
                thread.join(LOG_PAUSE)

    def _begin(self, over: Callable[[], bool]) -> bool:
        """Begins with the pods that are new; whether there will be no others. Raises UsageError, PlatformError."""
        ended = over()
        for pod, container in self._pods().items():
            if pod not in self._threads:
                self._threads[pod] = threading.Thread(target=self._copy, args=(pod, container), daemon=True)
                self._threads[pod].start()
        return ended

    def _pods(self) -> Mapping[str, str]:
        """By name, the container that has the output."""
        found = self._api.ask_now("get", self._api.path("pods"), query=self._query)["items"]
        phases = {each["metadata"]["name"]: (each.get("status") or {}).get("phase") for each in found}
        self._ended |= {name for name, phase in phases.items() if phase in ENDED}
        begun = [each for each in found if phases[each["metadata"]["name"]] in ("Running", *ENDED)]
        components = {each["metadata"]["name"]: each["metadata"]["labels"][objects.COMPONENT] for each in begun}
        return {name: pods.CONTAINER if what == "node" else what for name, what in sorted(components.items())}

    def _copy(self, pod: str, container: str, *, follow: bool = True) -> None:
        """Prints that log to its end, however often it breaks off: a stream may end before its pod has."""
        from ...master.nodes.kubernetes.api import NOT_FOUND, lines_of

        printed, begun, whole, query = PrintedLog(), time.monotonic(), False, self._tail
        asked: list[tuple[str, object]] = [("container", container), ("timestamps", "true")]
        asked += [("follow", "true")] if follow else []
        while True:
            ended = not follow or pod in self._ended
            try:
                text = self._api.text(self._api.path("pods", pod, "log"), [*asked, *query], SILENCE)
                for line in lines_of(text, rest=ended):
                    if (new := printed.text_of(line)) is not None:
                        self._print(new)
                whole = True
                if ended:
                    return
            except PlatformError as error:
                lasts = isinstance(error, PlatformUnavailable) or self.outage.since is not None
                if not (follow and lasts):
                    if not (whole and getattr(error, "status", 0) == NOT_FOUND):
                        say(f"the logs of {pod} end here: {error}")
                    return
                whole = False
            time.sleep(LOG_PAUSE)
            # With nothing printed, all that has come since then.
            since = [("sinceSeconds", int(time.monotonic() - begun) + 1)] if self._tail else []
            query = printed.take_up() or since

    def _print(self, line: bytes) -> None:
        """For this terminal, with the colours that it has."""
        text = visible(line.decode(errors="replace").removesuffix("\r"), colours=True)
        with self._lock:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
