"""Numbers over time as TensorBoard reads them."""

import struct
from pathlib import Path

from elastic_run.adapters.models.event_file import EventFile, compute_crc, encode_event, encode_record


def read_records(data: bytes) -> list[bytes]:
    """The events of a file, whose checksums are right."""
    found: list[bytes] = []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event = data[12 : 12 + length]
        assert data[: 16 + length] == encode_record(event)
        found.append(event)
        data = data[16 + length :]
    return found


def test_the_checksum_is_crc_32c_as_tfrecord_masks_it() -> None:
    assert compute_crc(b"123456789") == 0xE3069283
    masked = ((0x8A9136AA >> 15 | 0x8A9136AA << 17) + 0xA282EAD8) & 0xFFFFFFFF  # RFC 3720: of 32 zeros
    assert encode_record(bytes(32))[-4:] == struct.pack("<I", masked)


def test_an_event_is_the_bytes_that_protocol_buffers_make_of_it() -> None:
    event = encode_event(1.5, 300, {"validation/auc": 0.75, "huge": 1e300})
    value = b"\x0a\x0evalidation/auc\x15\x00\x00\x40\x3f"
    huge = b"\x0a\x04huge\x15\x00\x00\x80\x7f"
    summary = b"\x0a" + bytes([len(value)]) + value + b"\x0a" + bytes([len(huge)]) + huge
    assert event == b"\x09" + struct.pack("<d", 1.5) + b"\x10\xac\x02" + b"\x2a" + bytes([len(summary)]) + summary


def test_a_file_begins_with_its_version_and_the_step_from_which_others_count_no_more(tmp_path: Path) -> None:
    EventFile(tmp_path / "events", 8).add_scalars(9, {"training/loss": 1.0})
    (path,) = (tmp_path / "events").iterdir()
    version, start, scalars = (event[9:] for event in read_records(path.read_bytes()))
    assert version == b"\x10\x00\x1a\x0dbrain.Event:2"
    assert start == b"\x10\x08\x3a\x02\x08\x01"
    assert scalars.startswith(b"\x10\x09\x2a") and b"training/loss" in scalars
