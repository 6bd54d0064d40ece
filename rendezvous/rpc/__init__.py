"""Requests and answers between processes of a job: agents ask the master, workers ask their agent.

One connection per pair, with messages in frames (`wire/frame.py`). A message is a head, which this package knows, a
line feed, and a body, which is the method's own; both are JSON (`wire/values.py`).

    who asks    Hello                 once: the protocol's version, and who it is
                Asked + request       as often as it likes, without waiting for answers
    who answers Answered + answer     to each request by its id, in any order, or an error with a code

An error with the id 0 is about the connection, which is then closed. `envelope.py` imports no event loop: a worker
loads it. `client.py` and `server.py` are asyncio's two ends.
"""
