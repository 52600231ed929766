"""The bodies of lists and of large objects in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.apiserver.encoding import LargeBody, ListBody
from setpoint.wire.encoding import BLOCK, blocks


@given(st.lists(st.binary(min_size=1, max_size=60).map(lambda item: item * 1500), max_size=40))
def test_the_pieces_form_the_list(items: list[bytes]) -> None:
    listing = ListBody(b"[", items, b"]")
    whole = b"[" + b",".join(items) + b"]"
    assert b"".join(listing) == whole
    assert listing.size == len(whole)
    assert len(listing) == len(list(listing))
    assert listing[-1] == b"]" and listing[:1] == [b"["]


@pytest.mark.parametrize("size", [10, 1000, 3300, 20_000])
def test_pieces_are_written_without_another_copy(size: int) -> None:
    items = [b"x" * (size + size * (number % 5) // 10) for number in range(600_000 // size)]
    pieces = list(ListBody(b"", items, b""))[1:-1]
    written = list(blocks(pieces))
    assert len(pieces) >= 5
    assert all(one is other for one, other in zip(pieces[:-1], written, strict=False))


def test_pieces_are_built_lazily() -> None:
    items = [b"x" * 100_000, b"y" * 100_000]
    listing = ListBody(b"", items, b"")
    assert listing[2] is items[1]


@pytest.mark.parametrize("size", [2, 100, BLOCK, BLOCK + 1, 3 * BLOCK - 1])
def test_the_pieces_form_the_object(size: int) -> None:
    item = b"{" + bytes(number % 251 for number in range(size - 1))
    body = LargeBody(b'{"kind":"A",', item)
    whole = b'{"kind":"A",' + item[1:] + b"\n"
    assert b"".join(body) == whole
    assert body.size == len(whole)
    assert len(body) == len(list(body))
    assert body[-1] == b"\n" and b"".join(body[:-1]) + b"\n" == whole
    assert max(map(len, body)) <= BLOCK + len(whole) - len(item)
    with pytest.raises(IndexError):
        body[len(body)]
