"""A service of the framework `crew`: it notes each round of which it is told, with its pid, and says that it is ready.

Its second word is how it behaves: `serve`, `silent` (never ready), `once` (ends with 0 when it was told), `leave` (the
same, and leaves a child that ignores SIGTERM), `detach` (the same with a child in a session of its own), or `fail`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

name, behaviour = sys.argv[1:]
for line in sys.stdin:
    told = json.loads(line)
    with Path(f"told-{os.environ['PUPPET_NODE']}-{name}").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"pid": os.getpid(), **told}) + "\n")
    print(f"{name} serves round {told['round']}", flush=True)
    if behaviour == "fail":
        sys.exit("no licence")
    if behaviour in ("leave", "detach"):
        words = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen(
            [sys.executable, "-c", words], stdin=subprocess.DEVNULL, start_new_session=behaviour == "detach"
        )
        Path(f"left-{os.environ['PUPPET_NODE']}").write_text(str(child.pid), encoding="utf-8")
    if behaviour in ("once", "leave", "detach"):
        sys.exit(0)
    if behaviour != "silent":
        print("ready", flush=True)
