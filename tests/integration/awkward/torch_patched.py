"""Changes the world before torch is imported: seeds, hooks, warnings as errors, a module that is not there."""

import faulthandler
import gc
import locale
import random
import signal
import sys
import threading
import types

random.seed(1)
gc.disable()
gc.set_threshold(11, 12, 13)
sys.setrecursionlimit(1234)
sys.setswitchinterval(0.01)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.excepthook = lambda kind, error, trace: print("hook:", kind.__name__, error)
locale.setlocale(locale.LC_ALL, "C")
sys.modules["sympy"] = None
sys.modules["tqdm"] = types.ModuleType("tqdm")
print(random.random())

import numpy

numpy.random.seed(2)
import torch

print("draws", random.random(), numpy.random.random())
print("state", gc.isenabled(), gc.get_threshold(), sys.getrecursionlimit(), sys.getswitchinterval())
print("handlers", signal.getsignal(signal.SIGTERM), faulthandler.is_enabled(), locale.setlocale(locale.LC_ALL))
print("modules", "sympy" in sys.modules, sys.modules.get("sympy"), sys.modules["tqdm"].__spec__)
torch.manual_seed(4)
print(torch.rand(2), torch.initial_seed(), torch.random.get_rng_state().sum())
thread = threading.Thread(target=lambda: print("in a thread", torch.ones(2).sum(), torch.get_num_threads()))
thread.start()
thread.join()
torch.ones(2) @ torch.ones(3)
