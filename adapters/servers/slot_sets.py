"""Sets of slots: a bool for each slot (numpy), and as text for the wire (pure)."""

from typing import Any

import numpy as np

from ...master.servers.slot_table import SLOTS

SlotSet = np.ndarray[Any, np.dtype[np.bool_]]
"""(SLOTS,) bool."""

NO_SLOTS: SlotSet = np.zeros(SLOTS, np.bool_)
"""Nobody writes into a set: this one can be shared. (As read-only, numba would compile each loop again for it.)"""


def write_slots(slots: SlotSet) -> str:
    """As hexadecimal digits, the first slot's bit first; empty where there is none."""
    return np.packbits(slots).tobytes().hex() if slots.any() else ""


def read_slots(text: str) -> SlotSet:
    """What `write_slots` has written; ValueError where it has not."""
    if not text:
        return NO_SLOTS
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8)).astype(np.bool_)
    if len(bits) != SLOTS:
        raise ValueError(f"a set of slots has {SLOTS} bits, and this has {len(bits)}")
    return bits
