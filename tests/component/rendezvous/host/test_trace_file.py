"""A trace beside other processes: who has its file open, and what a script that is not traced loads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import elastic_run
from elastic_run.rendezvous.host.trace_file import Trace


def test_no_child_inherits_the_file(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    trace = Trace(str(file), "a", print, create=True)
    inode = file.stat().st_ino
    code = (
        "import os; numbers = [n for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')]; "
        "print([os.fstat(int(n)).st_ino for n in numbers])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, close_fds=False)
    assert inode not in json.loads(done.stdout)
    trace.close()


def test_a_script_that_is_not_traced_loads_no_writer() -> None:
    code = (
        "import sys, elastic_run; elastic_run.trace.mark('x'); elastic_run.trace.span('x'); "
        "print(sorted(name for name in sys.modules if 'trace' in name.rpartition('.')[2] or name == 'json'))"
    )
    path = str(Path(next(iter(elastic_run.__path__))).parent)
    environ = {"PYTHONPATH": path, "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout == "['elastic_run.adapters.client.script_trace', 'elastic_run.trace']\n"
