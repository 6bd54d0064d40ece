"""What the kernel says of a worker's process: descriptors, signals, limits, names, groups."""

import ctypes
import fcntl
import os
import resource
import signal
import stat
import sys


def say(name, value):
    print(f"{name}: {value!r}")


def read(name):
    with open(f"/proc/self/{name}", "rb") as file:
        return file.read()


def status():
    lines = read("status").decode().splitlines()
    return dict(line.split(":\t", 1) for line in lines)


open_now = sorted(int(number) for number in os.listdir("/proc/self/fd"))
say("descriptors", [number for number in open_now if os.path.exists(f"/proc/self/fd/{number}")])
for number in (0, 1, 2):
    kind = os.fstat(number)
    say(
        f"{number} is",
        (stat.S_IFMT(kind.st_mode), fcntl.fcntl(number, fcntl.F_GETFL), fcntl.fcntl(number, fcntl.F_GETFD)),
    )
say("apart", os.fstat(1).st_ino != os.fstat(2).st_ino)
for name in ("cmdline", "comm", "oom_score_adj", "coredump_filter", "autogroup", "cgroup", "loginuid", "sessionid"):
    try:
        say(name, read(name).split(b"nice")[-1])
    except OSError as error:
        say(name, error.errno)
for name in ("exe", "cwd", "root", "ns/pid", "ns/net", "ns/mnt"):
    say(name, os.readlink(f"/proc/self/{name}"))
found = status()
for (
    name
) in """Name Umask State Uid Gid Groups NSpid Threads SigPnd ShdPnd SigBlk SigIgn SigCgt CapInh CapPrm CapEff CapBnd
        CapAmb NoNewPrivs Seccomp Speculation_Store_Bypass THP_enabled Cpus_allowed_list Mems_allowed_list""".split():
    if name not in ("State", "NSpid"):
        say(f"status {name}", found.get(name))
first = dict(pair.partition(b"=")[::2] for pair in read("environ").split(b"\0"))
for name in sorted(os.environb):
    if name != b"LC_CTYPE":
        print(f"environ {name.decode()}={first.get(name, b'<missing>').decode()}")
say("environ has more", sorted(set(first) - set(os.environb) - {b""}))

for number in sorted(signal.valid_signals()):
    say(f"signal {int(number)}", signal.getsignal(number))
say("blocked", sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
say("pending", signal.sigpending())
say("wakeup", signal.set_wakeup_fd(-1))
say("timers", [signal.getitimer(which) for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)])
old = os.umask(0o022)
say("umask", old)
os.umask(old)
for name in sorted(name for name in dir(resource) if name.startswith("RLIMIT_")):
    say(name, resource.getrlimit(getattr(resource, name)))
say("nice", os.nice(0))
say("scheduler", (os.sched_getscheduler(0), os.sched_getparam(0), os.getpriority(os.PRIO_PROCESS, 0)))
say("affinity", sorted(os.sched_getaffinity(0)))
print("launched: leads", os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), os.getppid() != os.getpid())
try:
    os.open("/dev/tty", os.O_RDWR)
except OSError as error:
    say("terminal", error.errno)
try:
    say("children", os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    say("children", "none")
say("tasks", len(os.listdir("/proc/self/task")))
say("ids", (os.getresuid(), os.getresgid(), os.getgroups()))
libc = ctypes.CDLL(None, use_errno=True)
asked = ctypes.c_int(-1)
libc.prctl(2, ctypes.byref(asked), 0, 0, 0)
print("launched: dies with its parent by signal", asked.value)
libc.prctl(37, ctypes.byref(asked), 0, 0, 0)
say("subreaper", asked.value)
say(
    "dumpable, keeps capabilities, slack, securebits, no new rights",
    [libc.prctl(what, 0, 0, 0, 0) for what in (3, 7, 30, 27, 39)],
)
say("personality", libc.personality(0xFFFFFFFF))
say("errno", ctypes.get_errno())
say("rounding", libc.fegetround() if hasattr(libc, "fegetround") else 0)
rest = resource.getrusage(resource.RUSAGE_CHILDREN)
say("children have used", (rest.ru_utime, rest.ru_stime, rest.ru_maxrss))
say("shared and writable", [line for line in read("maps").decode().splitlines() if line.split()[1].startswith("rw-s")])
say("locks", [line for line in open("/proc/locks") if f" {os.getpid()} " in line])
say("main thread", os.getpid() == int(os.readlink("/proc/thread-self").split("/")[-1]))
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os._exit(3)
