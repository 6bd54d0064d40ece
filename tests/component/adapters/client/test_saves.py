"""Telling the agent of checkpoints: once for each, when training has gone on, and only where the job wants to know."""

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from elastic_run.adapters.client.channel import Back, Call
from elastic_run.adapters.client.context import AGENT, SCALE_UP
from elastic_run.adapters.client.saves import Saves
from elastic_run.rendezvous.rpc.envelope import Answered, Asked, packed, unpacked
from elastic_run.rendezvous.wire.frame import PREFIX
from elastic_run.rendezvous.wire.values import decode, encode


@dataclass
class Agent:
    """Takes calls on a socket as an agent does."""

    name: str = field(default_factory=lambda: f"elastic-run-test-{secrets.token_hex(4)}")
    heard: list[Call] = field(default_factory=list[Call])

    def serve(self, listening: socket.socket) -> None:
        while True:
            try:
                taken, _ = listening.accept()
            except OSError:
                return
            with taken, taken.makefile("rwb") as stream:
                while prefix := stream.read(PREFIX.size):
                    head, body = unpacked(stream.read(PREFIX.unpack(prefix)[0]))
                    if body:  # else it is the first message
                        self.heard.append(decode(Call, body))
                        stream.write(packed(Answered(decode(Asked, head).id), encode(Back())))
                        stream.flush()


@pytest.fixture
def agent() -> Iterator[Agent]:
    """One that listens."""
    found = Agent()
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind("\0" + found.name)
        listening.listen()
        thread = threading.Thread(target=found.serve, args=(listening,))
        thread.start()
        yield found
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def environment(agent: Agent, scale_up: str = "commit") -> dict[str, str]:
    variables = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "ELASTIC_RUN_ROUND": "7"}
    return {**variables, AGENT: f"@{agent.name}", SCALE_UP: scale_up}


def test_a_checkpoint_is_told_when_training_has_gone_on(agent: Agent) -> None:
    saves = Saves(environment(agent))
    saves.committed()
    saves.taken()
    assert agent.heard == []
    saves.committed()
    saves.committed()
    assert agent.heard == [Call("saved", 7)]


def test_each_checkpoint_is_told(agent: Agent) -> None:
    saves = Saves(environment(agent))
    for _ in range(3):
        saves.taken()
        saves.committed()
    assert agent.heard == [Call("saved", 7)] * 3


def test_a_worker_that_keeps_its_process_tells_in_the_round_that_it_is_in(agent: Agent) -> None:
    given = environment(agent)
    saves = Saves(given)
    given["ELASTIC_RUN_ROUND"] = "9"
    saves.taken()
    saves.committed()
    assert agent.heard == [Call("saved", 9)]


@pytest.mark.parametrize("scale_up", ["now", "never"])
def test_a_job_that_does_not_want_to_know_is_not_told(agent: Agent, scale_up: str) -> None:
    saves = Saves(environment(agent, scale_up))
    saves.taken()
    saves.committed()
    assert agent.heard == []


def test_without_a_launcher_nobody_is_told() -> None:
    saves = Saves({})
    saves.taken()
    saves.committed()


def test_an_agent_that_is_gone_is_no_failure_of_the_script() -> None:
    saves = Saves(environment(Agent()))
    saves.taken()
    saves.committed()
