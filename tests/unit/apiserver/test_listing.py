"""A list in pieces is the list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from setpoint.apiserver.listing import Listing


@given(st.lists(st.binary(min_size=1, max_size=60).map(lambda item: item * 1500), max_size=40))
def test_pieces_are_the_whole(items: list[bytes]) -> None:
    listing = Listing(b"[", items, b"]")
    whole = b"[" + b",".join(items) + b"]"
    assert b"".join(listing) == whole
    assert listing.size == len(whole)
    assert len(listing) == len(list(listing))
    assert listing[-1] == b"]" and listing[:1] == [b"["]


def test_a_piece_is_about_as_long_as_a_write() -> None:
    items = [b"x" * 1000] * 5000
    pieces = list(Listing(b"", items, b""))[1:-1]
    assert all(60_000 < len(piece) < 70_000 for piece in pieces[:-1])


def test_nothing_is_put_together_before_it_is_asked_for() -> None:
    items = [b"x" * 100_000, b"y" * 100_000]
    listing = Listing(b"", items, b"")
    assert listing[2] is items[1]
