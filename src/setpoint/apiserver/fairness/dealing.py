"""Which of a level's queues a flow may wait in: a few, dealt like cards, so that hardly two flows share all."""

from __future__ import annotations

from hashlib import sha256


def flow_hash(schema: str, distinguisher: str) -> int:
    """The same for all requests of a flow."""
    return int.from_bytes(sha256(f"{len(schema)}{schema},{distinguisher}".encode()).digest()[:8], "little")


def deal(value: int, deck: int, size: int) -> tuple[int, ...]:
    """`size` different cards of a deck of so many."""
    drawn: list[int] = []
    for taken in range(size):
        value, card = divmod(value, deck - taken)
        # The card counts among those that are left: each that was taken before and lies below it moves it up.
        for other in sorted(drawn):
            if card >= other:
                card += 1
        drawn.append(card)
    return tuple(drawn)
