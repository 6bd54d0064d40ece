"""Draws what must differ between workers, into `private/<rank>.json`, and prints what must not."""

import json
import multiprocessing
import os
import random
import secrets
import tempfile
import uuid

import numpy

early = (random.random(), numpy.random.random())

import threading

drawn = {
    "random": early[0],
    "numpy": early[1],
    "again": random.getrandbits(64),
    "numpy again": int(numpy.random.randint(2**62)),
    "default_rng": float(numpy.random.default_rng().random()),
    "state": random.getstate()[1][:3],
    "SystemRandom": random.SystemRandom().random(),
    "urandom": os.urandom(8).hex(),
    "secrets": secrets.token_hex(8),
    "uuid4": str(uuid.uuid4()),
    "mktemp": os.path.basename(tempfile.mktemp()),
    "authkey": bytes(multiprocessing.current_process().authkey).hex(),
}
thread = threading.Thread(target=lambda: drawn.update({"in a thread": random.random()}))
thread.start()
thread.join()
random.seed(3)
numpy.random.seed(3)
print("seeded:", random.random(), numpy.random.random(), numpy.random.default_rng(3).random())
print("a set:", {f"word {number}" for number in range(20)} if os.environ.get("PYTHONHASHSEED") else None)
print("a node:", uuid.getnode() == uuid.getnode(), len({uuid.uuid1() for _ in range(3)}))

os.makedirs("private", exist_ok=True)
with open(f"private/{os.environ['RANK']}.json", "w") as file:
    json.dump(drawn, file)
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    # The first that fails ends the others at once. One that was asking where temporary files go would leave one there.
    while len(os.listdir("private")) < int(os.environ["WORLD_SIZE"]):
        pass
    os._exit(3)
