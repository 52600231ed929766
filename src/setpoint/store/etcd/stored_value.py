"""The form in which a value is stored at etcd: the value, and the record of the transaction that wrote it.

The value has the offset of its revision stamp in front, because the revision is not known before the commit; it is
stamped when it is read. The first value that a transaction writes also has a record in front: `~`, the length of the
record in three bytes, and the record, which identifies the transaction and says its cause. A put costs etcd about 15 us
and every watch an event, so a record has a key of its own only in transactions that write no value.
"""

from __future__ import annotations

from setpoint.store.interface import Put
from setpoint.store.transaction import with_stamp_prefix

_MARK = b"~"
_LENGTH = 3


def encode(op: Put, record: bytes) -> bytes:
    """Return what is stored for `op`, with the record if it is not empty. Raises ValueError."""
    data = with_stamp_prefix(op)
    return _MARK + len(record).to_bytes(_LENGTH, "big") + record + data if record else data


def split(stored: bytes) -> tuple[bytes, bytes]:
    """Return the record, empty if there is none, and the value with its stamp prefix. Raises ValueError."""
    if not stored.startswith(_MARK):
        return b"", stored
    end = 1 + _LENGTH + int.from_bytes(stored[1 : 1 + _LENGTH], "big")
    if end > len(stored):
        raise ValueError(f"a stored value of {len(stored)} bytes ends within its record of {end - 1 - _LENGTH} bytes")
    return stored[1 + _LENGTH : end], stored[end:]
