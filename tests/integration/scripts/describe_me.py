"""Writes all that a launcher gives a worker into `$DESCRIBE_ME/<rank>.json`. Imports no framework."""

import json
import os
import sys
from pathlib import Path

main = sys.modules["__main__"]
stdin = os.fstat(0)
described = {
    "environment": dict(os.environ),
    "argv": sys.argv,
    "path[0]": sys.path[0],
    "cwd": str(Path.cwd()),
    "stdin": [stdin.st_dev, stdin.st_ino],
    "name": __name__,
    "is main": vars(main) is globals(),
    "file": __file__,
    "package": __package__,
    "spec": main.__spec__.name if main.__spec__ else None,
    "executable": sys.executable,
    "flags": [sys.flags.dont_write_bytecode, sys.flags.isolated, sys.flags.safe_path],
    "unbuffered": sys.stdout.write_through,
}
folder = Path(os.environ["DESCRIBE_ME"])
(folder / f"{os.environ['RANK']}.json").write_text(json.dumps(described))
