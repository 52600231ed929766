"""PEM blocks are found as Go's `encoding/pem` finds them."""

from __future__ import annotations

import pytest

from setpoint.kinds.certificates.requests import pair_error
from setpoint.meta.x509.pem import blocks, encode


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("-----BEGIN A-----\nYWJj\n-----END A-----", [("A", b"abc")]),
        ("-----BEGIN A-----\n-----END A-----\n", [("A", b"")]),
        ("-----BEGIN A-----  \r\nYW Jj\r\n-----END A-----\t\r\nx", [("A", b"abc")]),
        ("-----BEGIN A-----\nk: v\n\nYWJj\n-----END A-----\n", [("A", b"abc")]),
        ("-----BEGIN A-----\n-----BEGIN B-----\nYWJj\n-----END B-----\n", [("B", b"abc")]),
        ("-----BEGIN A-----\nYWJj\n-----END B-----\n-----BEGIN C-----\nYWJj\n-----END C-----\n", [("C", b"abc")]),
        ("x-----BEGIN A-----\nYWJj\n-----END A-----\n", []),
        ("-----BEGIN A-----\nYWJj\n-----END A-----x\n", []),
        ("-----BEGIN A-----\nk: v\n-----END A-----\n", []),
        ("-----BEGIN A-----\nno-base64\n-----END A-----\n", []),
        ("-----BEGIN A-----\nYWJj", []),
    ],
)
def test_blocks(text: str, found: list[tuple[str, bytes]]) -> None:
    assert [(block.type, block.data) for block in blocks(text.encode())] == found


def test_encode_and_read_round_trip() -> None:
    data = bytes(range(200))
    assert [(block.type, block.data) for block in blocks(encode("A B", data).encode() * 2)] == [("A B", data)] * 2


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN A-----\n" * 60_000,
        "".join(f"-----BEGIN A{i}-----\n" for i in range(60_000)),
        "-----BEGIN A-----\na: b\n" * 60_000 + "-----END A-----\n",
        "-----BEGIN a:-----\nx:\n" * 60_000 + "\n-----END b-----\n" * 60_000,
    ],
    ids=["the same", "others", "headers", "colons"],
)
def test_reading_is_linear_in_the_text(text: str) -> None:
    """The time must be linear in the length of the text: with a quadratic reader each case takes an hour."""
    assert list(blocks(text.encode())) == []
    assert pair_error(text.encode(), b"") == "tls: failed to find any PEM data in certificate input"
