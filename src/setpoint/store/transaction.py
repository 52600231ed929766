"""The effect of a transaction on a state: a pure function, so that every backend compares and stamps alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from setpoint.store.interface import Check, CompareFailed, Event, KeyValue, Op, Put

MAX_OPS = 65_536
_MAX_STAMP_DIGITS = 12
_LARGE = 64 << 10


def plan(
    ops: Sequence[Op], head: Callable[[str], KeyValue | None], revision: int
) -> tuple[list[Event], list[KeyValue | None]]:
    """Return the events of `ops` if they are committed at `revision`, and the result of each op.

    No events means that nothing changes, and that no revision is needed. `head` returns the entry to compare with.
    Raises CompareFailed, and ValueError for operations that no state can make valid."""
    if len(ops) > 1:
        if len({op.key for op in ops}) != len(ops):
            raise ValueError("a transaction contains the same key twice")
        if len(ops) > MAX_OPS:
            raise ValueError(f"a transaction has {len(ops)} operations; the maximum is {MAX_OPS}")
    events: list[Event] = []
    answers: list[KeyValue | None] = []
    for op in ops:
        key = op.key
        check_key(key)
        before = head(key)
        if op.expect is not None and op.expect != (before.mod_revision if before is not None else 0):
            raise CompareFailed(key, before)
        if before is not None:
            key = before.key  # all versions of a key share one str
        if isinstance(op, Put):
            value = op.value if op.stamp is None else stamped(op.value, op.stamp, revision)
            now = KeyValue(key, value, revision if before is None else before.create_revision, revision)
            events.append(Event(revision, key, now, before))
            answers.append(now)
        elif isinstance(op, Check):
            answers.append(None)
        else:
            if before is not None:
                events.append(Event(revision, key, None, before))
            answers.append(None)
    return events, answers


def check_key(key: str) -> None:
    """Raise ValueError unless every backend can store the key."""
    if not key or "\0" in key:
        raise ValueError(f"{key!r} cannot be a key: it is empty or holds a zero byte")
    if not key.isascii():
        key.encode()  # UnicodeEncodeError, a ValueError, for a lone surrogate


def stamped(value: bytes, offset: int, revision: int) -> bytes:
    if not 0 <= offset <= len(value):
        raise ValueError(f"the stamp at {offset} is outside of a value of {len(value)} bytes")
    if len(value) > _LARGE:  # one copy instead of three
        whole = memoryview(value)
        return b"".join((whole[:offset], b"%d" % revision, whole[offset:]))
    return b"%b%d%b" % (value[:offset], revision, value[offset:])


def with_stamp_prefix(op: Put) -> bytes:
    """Return the value with the offset of its revision stamp in front. Raises ValueError."""
    if op.stamp is None:
        return b":" + op.value
    if not 0 <= op.stamp <= len(op.value):
        raise ValueError(f"the stamp at {op.stamp} is outside of a value of {len(op.value)} bytes")
    return b"%d:%b" % (op.stamp, op.value)


def without_stamp_prefix(data: bytes, revision: int) -> bytes:
    """Return the value without the offset in front, stamped with `revision`. Raises ValueError."""
    end = data.index(b":", 0, _MAX_STAMP_DIGITS)
    if not end:
        return data[1:]
    offset = end + 1 + int(data[:end])
    if not end < offset <= len(data):
        raise ValueError(f"the stamp at {data[:end].decode()} is outside of a value of {len(data) - end - 1} bytes")
    return b"%b%d%b" % (data[end + 1 : offset], revision, data[offset:])
