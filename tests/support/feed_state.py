"""The output of a feed, kept as the state that a tab would have."""

from __future__ import annotations

from setpoint.web.feed import Item


class FeedState:
    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.entries: list[Item] = []
        self.is_synced = False
        self.changes = 0
        """The number of calls that changed an item."""

    def set(self, key: str, item: Item) -> None:
        self.changes += 1
        self.items[key] = item

    def remove(self, key: str) -> None:
        self.changes += 1
        self.items.pop(key, None)

    def log(self, entry: Item) -> None:
        self.entries.append(entry)

    def synced(self) -> None:
        self.is_synced = True
