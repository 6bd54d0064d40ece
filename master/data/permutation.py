"""A shuffled order of any length that needs no memory: a keyed permutation of range(n) (pure).

`Permutation(n, key)[i]` is a number below n, another one for each i: what stands at index i of a shuffled list, without
the list. It follows from n and the key alone, and must stay what it is in every version of this package, because
checkpoints hold indices in it. This is the whole construction, version 1; all numbers are unsigned and big-endian:

  - `key(seed, epoch, name)` is the text `elastic-run order 1 <seed> <epoch> <name>` in UTF-8, the numbers in decimal.
  - An index i is a pair: i = left * width + right. The height is the smallest even number whose square is at least n
    (1 where n is 1), the width is n / height, rounded up; so height * width exceeds n by less than the height.
  - Round j has three secret 64-bit numbers a, b, c: the first 24 bytes of blake2b, 64 bytes long, over j (one byte),
    n (16 bytes) and the key, with the lowest bits of b and c set. With them, and all products modulo 2**64,
    f(x) = ((y xor y // 2**32) * c) // 2**32, where y = (x + a) * b. (No number is longer than 64 bits, so that
    arrays of machine words can do it as well.)
  - In the even rounds left becomes (left + f(right)) modulo height, in the odd ones right becomes (right + f(left))
    modulo width: a Feistel network, which permutes the pairs whatever f is. There are 8 rounds; 24 where n is below
    256, because small squares mix slowly. The height is even because odd squares reach only every other order.
  - A pair that stands for n or more goes through all rounds again until it does not ("cycle walking", Black and
    Rogaway, "Ciphers with arbitrary finite domains", 2002): about one in the root of n does.

It shuffles training data and keeps no secrets.
"""

import math
from collections.abc import Iterator
from hashlib import blake2b

SMALL = 256
"""Below this a permutation has more rounds."""

_MASK = 2**64 - 1


def key(seed: int, epoch: int, name: str = "") -> bytes:
    """What makes the order of one epoch of one dataset its own."""
    return f"elastic-run order 1 {seed} {epoch} {name}".encode()


class Permutation:
    """One order of the numbers below `n`.

    Args:
        n: how many, from 1 to 2**64.
        key: the same key gives the same order; see `key`.

    Attributes:
        n: how many.
        height, width: of the rectangle of pairs.
        rounds: the secret numbers, of two rounds at a time: a, b, c of the even one and of the odd one.
    """

    __slots__ = ("height", "n", "rounds", "width")

    def __init__(self, n: int, key: bytes) -> None:
        if not 1 <= n <= 2**64:
            raise ValueError(f"cannot order {n} records: the number must be from 1 to 2**64")
        self.n = n
        root = math.isqrt(n - 1) + 1  # rounded up
        self.height = 1 if n == 1 else root + root % 2
        self.width = -(-n // self.height)
        secrets = [_secrets(number, n, key) for number in range(24 if n < SMALL else 8)]
        self.rounds = tuple((*even, *odd) for even, odd in zip(secrets[::2], secrets[1::2], strict=True))

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        """The number at `index`, from 0; IndexError beyond the end."""
        if not 0 <= index < self.n:
            raise IndexError(f"index {index} of an order of {self.n}")
        return self.slice(index, index + 1)[0]

    def __iter__(self) -> Iterator[int]:
        for start in range(0, self.n, 1024):
            yield from self.slice(start, min(start + 1024, self.n))

    def slice(self, start: int, stop: int) -> list[int]:
        """The numbers at the indices from `start` to before `stop`; one call for many is faster than one by one."""
        if not 0 <= start <= stop <= self.n:
            raise IndexError(f"indices {start} to {stop} of an order of {self.n}")
        n, height, width, rounds, mask = self.n, self.height, self.width, self.rounds, _MASK
        found: list[int] = []
        append = found.append
        for number in range(start, stop):
            while True:
                left, right = divmod(number, width)
                for a, b, c, d, e, f in rounds:  # two rounds at a time, written out: a call would cost as much again
                    mixed = (right + a) * b & mask
                    left = (left + (((mixed ^ mixed >> 32) * c & mask) >> 32)) % height
                    mixed = (left + d) * e & mask
                    right = (right + (((mixed ^ mixed >> 32) * f & mask) >> 32)) % width
                number = left * width + right
                if number < n:
                    break
            append(number)
        return found


def _secrets(number: int, n: int, key: bytes) -> tuple[int, int, int]:
    digest = blake2b(bytes([number]) + n.to_bytes(16, "big") + key).digest()
    a, b, c = (int.from_bytes(digest[at : at + 8], "big") for at in (0, 8, 16))
    return a, b | 1, c | 1
