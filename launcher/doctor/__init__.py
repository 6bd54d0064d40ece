"""`elastic-run doctor`: what of this machine, its store and its time-outs would trouble a job, before one is started.

facts.py      asks the machine, the store and the workers' Python; judges nothing
findings.py   what the facts mean, and what to do about it (pure)
command.py    the command
"""
