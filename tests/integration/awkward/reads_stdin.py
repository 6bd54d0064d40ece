"""Reads its standard input in three ways."""

import os
import sys

print(repr(input("asks: ")), repr(sys.stdin.readline()))
for line in sys.stdin:
    print(repr(line))
    break
print(repr(sys.stdin.read()), repr(os.read(0, 10)))
try:
    input()
except EOFError as error:
    print(error)
