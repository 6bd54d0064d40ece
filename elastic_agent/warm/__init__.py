"""What runs inside a warm interpreter, from which workers are forked. Standard library only, and little of it.

The folder is put first on PYTHONPATH of an interpreter that is started with a worker's own command line. There,
`sitecustomize.py` is found by Python's own start-up, before anything of the script. It imports what the script is
known to import, and waits inside of it; a worker is a fork that lets the start-up go on. So everything from there on is
Python's own: how the script is found and run, `__main__`, tracebacks, and the end of the process.
"""
