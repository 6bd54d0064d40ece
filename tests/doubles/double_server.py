"""In place of a parameter server: says where it listens, answers each question alike, and prints the orders it has got.

    python double_server.py [HOW ...]

HOW: `dies` before it is ready; `hangs` once it is ready; `mumbles`; `joins`: what it copies is whole with each table;
`damaged`: it ends at the second table.
"""

import json
import os
import secrets
import select
import socket
import sys

how = set(sys.argv[1:])
name = f"elastic-run-double-{secrets.token_hex(8)}"
listening = socket.socket(socket.AF_UNIX)
listening.bind(f"\0{name}")
listening.listen()
reading = {sys.stdin.fileno(), listening.fileno()}
asking: dict[int, socket.socket] = {}
begun, joined = b"", 0


def obey(line: bytes) -> None:
    global joined
    orders = json.loads(line)
    if "dies" in how:
        sys.exit("cannot begin")
    print(f"orders of {orders['table']['version']} to {orders['incarnation']}", flush=True)
    if "damaged" in how and orders["table"]["version"] > 1:
        sys.exit("the rows of a checkpoint cannot be read: part-0 is damaged")
    if "mumbles" in how:
        print("ready: somewhere", flush=True)
        return
    joined = orders["table"]["version"] if "joins" in how else 0
    remote = "-" if orders["bind"] is None else f"{orders['host']}:4711"
    print(f"ready: @{name} {remote} {joined} 0", flush=True)


while True:
    for each in select.select(reading, [], [])[0]:
        if each == sys.stdin.fileno():
            data = os.read(each, 1 << 20)
            if not data:
                sys.exit()
            *lines, begun = (begun + data).split(b"\n")
            for line in lines:
                obey(line)
        elif each == listening.fileno():
            connection, _ = listening.accept()
            asking[connection.fileno()] = connection
            reading.add(connection.fileno())
        elif not asking[each].recv(1 << 16):
            reading.discard(each)
            asking.pop(each).close()
        elif "hangs" not in how:
            answer = b'{"reply":{},"arrays":[]}'
            asking[each].sendall(len(answer).to_bytes(4, "little") + answer)
