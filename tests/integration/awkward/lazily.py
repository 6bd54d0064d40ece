"""Imports in unusual ways: late, again, by name, in threads, by rank, and submodules only when wanted."""

import concurrent
import email
import importlib
import importlib.util
import os
import sys
import threading
import xml

import numpy

for owner, name in (
    (xml, "dom"),
    (email, "message"),
    (concurrent, "futures"),
    (numpy, "f2py"),
    (importlib, "metadata"),
):
    print(owner.__name__, name, hasattr(owner, name), f"{owner.__name__}.{name}" in sys.modules)
print([name for name in ("numpy.testing", "json", "random", "decimal", "logging", "ssl") if name in sys.modules])
import xml.dom

print(hasattr(xml, "dom"), hasattr(xml, "sax"), "xml.sax" in sys.modules)
from email import message

print(hasattr(email, "message"), hasattr(email, "mime"), message.__name__)

import json

before, first = json.JSONDecoder, id(json)
print("reloaded", importlib.reload(json) is json, id(json) == first, json.JSONDecoder is before)
del sys.modules["json"]
import json as second

print("again", second is json, hasattr(second, "decoder"), second.loads is json.loads)
for name in list(sys.modules):
    if name == "json" or name.startswith("json."):
        del sys.modules[name]
import json.decoder

print("anew", json is second, json.decoder.JSONDecoder is before)

if os.environ["RANK"] == "0":
    import plistlib
else:
    import statistics
print(sorted({"plistlib", "statistics", "fractions"} & set(sys.modules)))


def in_thread():
    import csv
    import zoneinfo

    print("in a thread:", csv.__name__, zoneinfo.__name__, threading.current_thread().name)


thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
both = [threading.Thread(target=importlib.import_module, args=("sqlite3",)) for _ in range(4)]
for thread in both:
    thread.start()
for thread in both:
    thread.join()
print("sqlite3" in sys.modules, sys.modules["sqlite3"].__spec__.name)
print(importlib.import_module("..sax", "xml.dom").__name__, importlib.import_module("os.path").__name__)
print(importlib.import_module("antigravity_not") if importlib.util.find_spec("antigravity_not") else "none")
with __import__("contextlib").suppress(ImportError):
    from json import not_there
exec(compile("import colorsys as c; print(c.__spec__.origin is not None)", "<text>", "exec"))
print("filters", len(__import__("warnings").filters), [m for m in sys.modules if m.startswith("xml")])
print("modules", list(sys.modules))
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(3)
