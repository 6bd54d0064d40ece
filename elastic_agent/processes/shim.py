"""The few lines that run between the agent's fork and a worker's own program.

Run by path as `python -I -S shim.py AGENT_PID LIMITS -- COMMAND...`. It asks the kernel to kill the worker when the
agent dies, and lets the agent's own programs read its stacks where the kernel wants to be asked (Yama). It gives the
program the signal state that the launcher was started with and LIMITS as its soft limits of open files and of a core
file (the agent has changed its own; `-` changes nothing), and becomes the program: same pid, same session, no parent
left. Standard library only, and as little of it as possible: every worker pays for this start (about 10 ms; importing
`signal` alone would add 4, so signals are set through libc).
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1
PR_SET_PTRACER = 0x59616D61
SIGKILL = 9
SIGPIPE, SIGXFSZ = 13, 25
SIG_DFL = None
SIG_SETMASK = 2

NOT_FOUND = 127
NOT_EXECUTABLE = 126


def main() -> int:
    """Become the command in `sys.argv`; returns (with an exit code as a shell's) only where that is not possible."""
    agent, limits, command = int(sys.argv[1]), sys.argv[2], sys.argv[4:]
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if os.getppid() != agent:
        # The agent died before the line above: its death will not be told to us.
        os.kill(os.getpid(), SIGKILL)
    libc.prctl(PR_SET_PTRACER, agent, 0, 0, 0)
    if limits != "-":
        import resource  # here, because it is not needed where nothing was changed

        for which, soft in zip((resource.RLIMIT_NOFILE, resource.RLIMIT_CORE), limits.split(","), strict=True):
            resource.setrlimit(which, (int(soft), resource.getrlimit(which)[1]))
    # What is ignored stays ignored over exec: what the launcher's caller ignores (`nohup` does), and these two, which
    # this interpreter ignores by itself.
    for number in (SIGPIPE, SIGXFSZ):
        libc.signal(number, SIG_DFL)
    libc.sigprocmask(SIG_SETMASK, bytes(128), None)
    try:
        os.execvpe(command[0], command, os.environ)
    except FileNotFoundError:
        # Also raised where the interpreter in a script's first line does not exist.
        present = os.path.exists(command[0])  # noqa: PTH110 - pathlib costs more than all of the rest
        why = "the interpreter named in its first line was not found" if present else "no such file or command"
        code = NOT_FOUND
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        code = NOT_EXECUTABLE
    sys.stderr.write(f"[elastic-run] cannot run {command[0]}: {why}\n")
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    # No interpreter teardown: there is nothing to tear down.
    os._exit(main())
