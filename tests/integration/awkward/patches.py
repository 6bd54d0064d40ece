"""Changes modules before it imports others, which look at what they find while they are imported."""

import builtins
import os
import sys
import time
import types

said = []
builtins.print, real_print = (lambda *words, **_: said.append(words)), print
time.monotonic, real_monotonic = (lambda: 5.0), time.monotonic

import queue  # from time import monotonic as time

real_print("queue has", queue.time())
time.monotonic = real_monotonic

fake = sys.modules["decimal"] = types.ModuleType("decimal")
fake.Decimal = type("Decimal", (), {"__hash__": None})
import fractions  # from decimal import Decimal

real_print("fractions has", fractions.Decimal is fake.Decimal, fractions.Decimal.__module__)

os.urandom, real_urandom = (lambda size: b"\1" * size), os.urandom
import uuid

real_print("uuid has", uuid.uuid4())
os.urandom = real_urandom

import random

random.seed, real_seed = (lambda *_: said.append("random.seed")), random.seed
import secrets
import tempfile

random.seed()
random.seed = real_seed

import socket

socket.getaddrinfo = lambda *_, **__: [(2, 1, 6, "", ("192.0.2.1", 80))]
import http.client
import urllib.request

real_print("http has", http.client.socket.getaddrinfo("nowhere", 80))

sys.modules["sndhdr"] = None
try:
    import sndhdr
except ImportError as error:
    real_print(type(error).__name__, error)

builtins.__import__, real_import = (
    (lambda name, *rest: said.append(("import", name)) or real_import(name, *rest)),
    builtins.__import__,
)
import html.parser
import xml.dom

import numpy.linalg

builtins.__import__ = real_import

os.environ["HOME"] = "/nowhere"
os.path.expanduser, real_expanduser = (lambda path: "expanded " + path), os.path.expanduser
import netrc
import sysconfig

real_print(sysconfig.get_config_var("userbase"))
os.path.expanduser = real_expanduser

builtins.open, real_open = (lambda *words, **more: said.append(("open", *words)) or real_open(*words, **more)), open
import mimetypes

mimetypes.guess_type("name.html")
builtins.open = real_open
builtins.print = real_print
print(*said, sep="\n")
print("modules", [name for name in sys.modules if not name.startswith("numpy.")])
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os._exit(3)
