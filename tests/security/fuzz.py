"""Fuzzes every decoder with atheris: `make fuzz`, or `python -m tests.security.fuzz -max_total_time=60`.

The first byte chooses the decoder. What one must not raise ends it, and the bytes lie in a file `crash-...`.
"""

import sys

import atheris  # pyright: ignore[reportMissingImports]  # `make fuzz` installs it

with atheris.instrument_imports(include=["elastic_run"]):  # pyright: ignore[reportUnknownMemberType]
    from .decoders import DECODERS, feed

NAMES = tuple(DECODERS)


def once(data: bytes) -> None:
    """One input."""
    if data:
        feed(NAMES[data[0] % len(NAMES)], data[1:])


if __name__ == "__main__":
    atheris.Setup(sys.argv, once)  # pyright: ignore[reportUnknownMemberType]
    atheris.Fuzz()  # pyright: ignore[reportUnknownMemberType]
