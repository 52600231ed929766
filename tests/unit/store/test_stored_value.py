"""The form of values at etcd."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.store.etcd import stored_value
from setpoint.store.interface import Put
from setpoint.store.transaction import with_stamp_prefix, without_stamp_prefix


@given(st.binary(max_size=300), st.binary(max_size=300), st.booleans(), st.integers(min_value=1))
def test_encode_and_split_are_inverse(value: bytes, record: bytes, has_stamp: bool, revision: int) -> None:
    op = Put("a", value, stamp=len(value) // 2 if has_stamp else None)
    found, data = stored_value.split(stored_value.encode(op, record))
    assert found == record
    assert without_stamp_prefix(data, revision) == without_stamp_prefix(with_stamp_prefix(op), revision)


@given(st.binary(max_size=300), st.integers(0, 300))
def test_values_without_a_record_are_those_of_earlier_versions(value: bytes, stamp: int) -> None:
    op = Put("a", value, stamp=min(stamp, len(value)))
    assert stored_value.encode(op, b"") == with_stamp_prefix(op)
    assert stored_value.split(with_stamp_prefix(op)) == (b"", with_stamp_prefix(op))


@given(st.binary(min_size=1, max_size=300), st.data())
def test_a_value_that_ends_within_its_record_is_invalid(record: bytes, data: st.DataObject) -> None:
    whole = stored_value.encode(Put("a", b""), record)
    with pytest.raises(ValueError, match="ends within its record"):
        stored_value.split(whole[: data.draw(st.integers(4, 3 + len(record)))])


def test_a_stamp_outside_of_the_value_is_invalid() -> None:
    with pytest.raises(ValueError, match="outside"):
        stored_value.encode(Put("a", b"1", stamp=2), b"record")
