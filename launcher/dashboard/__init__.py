"""The page of a report, live: `--dashboard[=HOST:PORT]`.

Every agent that is given the flag serves it, whichever node leads the job: it has this node's own events, and asks
whoever leads for the rest. So it survives the move of the master to another node.

site.py      what a request is answered with (pure)
server.py    the HTTP server, in a thread of its own
"""
