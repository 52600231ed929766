"""The body of a list in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from setpoint.apiserver.encoding import ListBody


@given(st.lists(st.binary(min_size=1, max_size=60).map(lambda item: item * 1500), max_size=40))
def test_the_pieces_form_the_list(items: list[bytes]) -> None:
    listing = ListBody(b"[", items, b"]")
    whole = b"[" + b",".join(items) + b"]"
    assert b"".join(listing) == whole
    assert listing.size == len(whole)
    assert len(listing) == len(list(listing))
    assert listing[-1] == b"]" and listing[:1] == [b"["]


def test_pieces_have_the_size_of_one_write() -> None:
    items = [b"x" * 1000] * 5000
    pieces = list(ListBody(b"", items, b""))[1:-1]
    assert all(60_000 < len(piece) < 70_000 for piece in pieces[:-1])


def test_pieces_are_built_lazily() -> None:
    items = [b"x" * 100_000, b"y" * 100_000]
    listing = ListBody(b"", items, b"")
    assert listing[2] is items[1]
