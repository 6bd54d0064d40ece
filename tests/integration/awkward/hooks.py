"""Import hooks, audit hooks, path hooks and warnings turned to errors, all set before other modules are imported."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import warnings

asked = []


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        asked.append((name, bool(path)))
        if name == "invented":
            return importlib.machinery.ModuleSpec(name, Loader())
        return None


class Loader(importlib.abc.Loader):
    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.value = __name__


audited = []
sys.addaudithook(lambda event, arguments: audited.append(arguments[0]) if event == "import" else None)
sys.meta_path.insert(0, Finder())

import email.message
import wave

import invented
import numpy.polynomial

sys.meta_path.pop(0)
print("asked for", asked)
print("audited", list(dict.fromkeys(audited)))  # a library that is in memory is audited once, not twice
print(invented.value, sys.modules["invented"].__spec__)

warnings.simplefilter("error")
for name in ("cgi", "imghdr", "telnetlib", "asynchat", "xml.dom.minidom", "numpy.testing"):
    try:
        importlib.import_module(name)
        print(name, "is imported")
    except DeprecationWarning as warning:
        print(name, "warns", str(warning).partition(" ")[0], name in sys.modules)
warnings.simplefilter("always")
import crypt
import pipes

print([str(line[:3]) for line in warnings.filters])
sys.path_hooks.insert(0, lambda path: (_ for _ in ()).throw(ImportError(path)))
sys.path_importer_cache.clear()
import chunk

print("chunk" in sys.modules, len(sys.path_importer_cache) > 0)
print(importlib.util.find_spec("sunau"), "sunau" in sys.modules)
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os._exit(3)
