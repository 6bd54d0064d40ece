"""How long things take in a simulated cluster: each with where it comes from."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds.

    *Measured* ones were read from the traces of a real run on two cores (`python -m benchmarks.cluster honest` prints
    those of its own); *stated* ones are assumptions about a cluster; there is none here.

    Attributes:
        api: a request to the API server, and the news of a change (stated; measured here: 5 to 20 ms).
        schedule: from a pod's creation, or from room that comes free, to its place (stated; measured here: 20 ms, and
            up to a second where the scheduler waits before it tries a pod again).
        container: from a pod's place to its process (stated: the image is on the machine).
        master: from a job's submission to its node manager's first look: a pod like the others (stated), and Python.
        agent: from a node's process to its registration (measured).
        script: from a worker's start to its first process group: the interpreter, torch, the model (measured).
        leave: from the agents' invitation to a process group that everybody has left: a step or two (measured).
        form: from the last worker with a rank to the first step: the process group and the state (measured).
        stop: from SIGTERM to a worker's end (measured).
        store: a write of the job's store until somebody who watches has it (measured).
        end: from an agent's last word to its pod's end: its process, and the kubelet's report (stated).
    """

    api: float = 0.02
    schedule: float = 0.1
    container: float = 1.0
    master: float = 1.5
    agent: float = 0.3
    script: float = 3.6
    leave: float = 0.1
    form: float = 0.2
    stop: float = 0.1
    store: float = 0.003
    end: float = 0.2
