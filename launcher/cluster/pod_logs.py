# What the API says is plain JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What the pods of a job have printed: `elastic-job logs`."""

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ...master.nodes.platform import PlatformError
from ...rendezvous.visible import visible
from .arguments import say
from .progress import Waiting, is_over, status_of, until_over

if TYPE_CHECKING:
    from ...master.nodes.kubernetes.api import Api

LOG_PAUSE = 2.0
"""Seconds between two looks for pods that are new."""


def logs(api: "Api", arguments: argparse.Namespace) -> int:
    """`elastic-job logs`."""
    status_of(api, arguments.name)  # there is such a job
    tails = Tails(api, arguments.name, arguments.tail, master=arguments.master, follow=arguments.follow)
    if arguments.follow:
        tails.until(lambda: is_over(api, arguments.name))
    else:
        tails.once()
    return 0


def follow(api: "Api", name: str) -> int:
    """What its nodes print, until it is over; its exit code."""
    tails = Tails(api, name, -1, master=False, follow=True)
    tails.until(Waiting(api, name).is_over)
    return until_over(api, name, None)


class Tails:
    """The output of a job's pods, as it comes, each line whole."""

    def __init__(self, api: "Api", name: str, tail: int, *, master: bool, follow: bool) -> None:
        from ...master.nodes.kubernetes import objects, pods

        self._api = api
        components = "node,master" if master else "node"
        self._query = [("labelSelector", f"{pods.JOB}={name},{objects.COMPONENT} in ({components})")]
        self._tail = tail
        self._follow = follow
        self._threads: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()

    def once(self) -> None:
        """What there is."""
        for pod, container in self._pods().items():
            self._copy(pod, container)

    def until(self, over: Callable[[], bool]) -> None:
        """Until the job is over, and everything is printed."""
        while True:
            ended = over()
            try:
                for pod, container in self._pods().items():
                    if pod not in self._threads:
                        thread = threading.Thread(target=self._copy, args=(pod, container), daemon=True)
                        self._threads[pod] = thread
                        thread.start()
            except PlatformError:
                pass  # asked again
            if ended:
                break
            time.sleep(LOG_PAUSE)
        for thread in self._threads.values():
            thread.join(10.0)

    def _pods(self) -> Mapping[str, str]:
        """By name, the container that has the output."""
        from ...master.nodes.kubernetes import objects, pods

        found = self._api.ask_now("get", self._api.path("pods"), query=self._query)["items"]
        begun = [
            each for each in found if (each.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")
        ]
        components = {each["metadata"]["name"]: each["metadata"]["labels"][objects.COMPONENT] for each in begun}
        return {name: pods.CONTAINER if what == "node" else what for name, what in sorted(components.items())}

    def _copy(self, pod: str, container: str) -> None:
        query: list[tuple[str, object]] = [("container", container)]
        query += [("follow", "true")] if self._follow else []
        query += [("tailLines", self._tail)] if self._tail >= 0 else []
        try:
            for line in _lines(self._api.text(self._api.path("pods", pod, "log"), query)):
                with self._lock:
                    sys.stdout.write(line)
                    sys.stdout.flush()
        except PlatformError as error:
            say(f"the logs of {pod} end here: {error}")


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from map(_line_of_a_pod, whole)
    if rest:
        yield _line_of_a_pod(rest)


def _line_of_a_pod(line: bytes) -> str:
    """For this terminal, with the colours that it has."""
    text = line.decode(errors="replace").removesuffix("\r")
    return f"{visible(text, colours=True)}\n"
