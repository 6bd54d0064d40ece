"""Runs other programs: what they inherit is what this worker has."""

import asyncio
import os
import signal
import subprocess
import sys

DESCRIBE = """
import os, signal, sys
print(sorted(sys.modules))
print(sys.argv, sys.orig_argv, sys.path, sys.flags)
for name in sorted(os.environ):
    print(f"env {name}={os.environ[name]}")
print([int(name) for name in sorted(os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{name}")])
print({int(number): str(signal.getsignal(number)) for number in signal.valid_signals()})
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), os.getppid() == int(os.environ["PARENT"]))
kept = ("SigB", "SigI", "SigC", "SigP", "Cap", "Seccomp", "NoNew", "Umask")
print([line for line in open("/proc/self/status") if line.startswith(kept)])
"""

os.environ["PARENT"] = str(os.getpid())
done = subprocess.run([sys.executable, "-c", DESCRIBE], capture_output=True, text=True, check=True, close_fds=False)
print(done.stdout.replace(str(os.getpid()), "PID"), done.stderr)
print(subprocess.run(["sh", "-c", "echo $0 $RANK $-; ulimit -a; umask; exit 3"], check=False))
print(os.system("exit 4"), os.waitstatus_to_exitcode(os.system("exit 4")))
with os.popen("cat", "w") as pipe:
    pipe.write("through a pipe\n")
print(os.posix_spawn("/bin/true", ["true"], os.environ) > 0, os.wait()[1])
ended = []
signal.signal(signal.SIGCHLD, lambda number, _: ended.append(number))
subprocess.run(["true"], check=True)
print("heard of", ended)


async def main():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import sys; print(sys.stdin.read().upper())", stdin=-1, stdout=-1
    )
    print(await process.communicate(b"asyncio"), process.returncode)
    loop = asyncio.get_running_loop()
    heard = loop.create_future()
    loop.add_signal_handler(signal.SIGUSR1, heard.set_result, "a signal in a loop")
    os.kill(os.getpid(), signal.SIGUSR1)
    print(await heard, await asyncio.to_thread(len, "abc"))
    print(await loop.run_in_executor(None, sum, range(5)))


asyncio.run(main())
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os._exit(3)
