"""Has modules beside it that are named as others are: of the standard library, of a package, and of both."""

import colorsys  # beside this file
import os
import sys

import numpy
import sklearn  # beside this file

print(colorsys.__file__ == os.path.join(sys.path[0], "colorsys.py"), colorsys.OURS, sklearn.OURS)
print(os.path.dirname(colorsys.__file__) == os.path.dirname(os.path.abspath(__file__)), colorsys.__cached__ is not None)
os.makedirs("first", exist_ok=True)
for name in ("wave", "scipy", "statistics"):
    with open(f"first/{name}.py", "w") as file:
        file.write(f"print('a {name} of our own', __name__, __spec__.origin)\n")
sys.path.insert(0, os.path.abspath("first"))
import statistics
import wave

import scipy

print(vars(scipy).get("linalg"), vars(wave).get("Wave_read"))
os.chdir("first")
sys.path.insert(0, "")
with open("sunau.py", "w") as file:
    file.write("OURS = __file__\n")
import sunau

print(sunau.OURS, sys.path_importer_cache.get("") is not None)
os.makedirs("dask/array", exist_ok=True)
import dask.array  # a folder without __init__.py

print(dask.__path__, dask.array.__spec__.loader, dask.__file__)
import package
from package import talks

print(package.names, talks.said)
if os.environ.get("FAILS_FIRST") and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os._exit(3)
