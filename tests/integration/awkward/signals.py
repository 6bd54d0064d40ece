"""Handlers, alarms, timers and masks work as they do in a process of one's own."""

import faulthandler
import os
import signal
import sys
import threading
import time

heard = []


def handler(number, frame):
    heard.append((signal.Signals(number).name, frame.f_code.co_name, threading.current_thread().name))


for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
    print(signal.signal(number, handler))
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    os.kill(os.getpid(), number)
signal.setitimer(signal.ITIMER_REAL, 0.05)
signal.pause()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.kill(os.getpid(), signal.SIGUSR1)
print(signal.sigpending(), signal.sigwait([signal.SIGUSR1]))
signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
print(heard)
reading, writing = os.pipe()
os.set_blocking(writing, False)
print(signal.set_wakeup_fd(writing))
signal.raise_signal(signal.SIGHUP)
print(os.read(reading, 10), signal.set_wakeup_fd(-1))
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)
except KeyboardInterrupt as error:
    print("interrupted", error.args)
faulthandler.register(signal.SIGUSR2, all_threads=True, chain=False)
os.kill(os.getpid(), signal.SIGUSR2)
faulthandler.dump_traceback_later(60)
faulthandler.cancel_dump_traceback_later()
try:
    thread = threading.Thread(target=lambda: print("in a thread:", signal.getsignal(signal.SIGINT).__name__))
    thread.start()
    thread.join()
    os.write(os.open("/dev/full", os.O_WRONLY), b"x")
except OSError as error:
    print(error, file=sys.stderr)
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os._exit(3)
