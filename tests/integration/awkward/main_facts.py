"""A script that may be run under many names: what it knows of itself."""

import sys

main = sys.modules["__main__"]
print(
    "runs as",
    __name__,
    __file__,
    __package__,
    __spec__,
    __doc__ == main.__doc__,
    __cached__ if "__cached__" in globals() else None,
)
print("loader", __loader__)
print("argv", sys.argv)
print("orig_argv", sys.orig_argv)
print("path", sys.path)
print("names", [name for name in vars(main)], main.__dict__ is globals())
print("importers", sorted(sys.path_importer_cache))


class Thing:
    """To be pickled."""


import pickle

print(pickle.dumps(Thing)[:40], pickle.loads(pickle.dumps(Thing())).__class__ is Thing, Thing.__module__)
import inspect
import linecache

print(inspect.getsourcefile(Thing), inspect.getsource(Thing).splitlines()[0], linecache.getline(__file__, 1).strip())
1 / 0
