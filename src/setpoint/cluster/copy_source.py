"""Copies of the state of a server's own store, now or at a moment of the past, for forks and plans."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from setpoint.apiserver.admission.default_toleration_seconds import DEFAULT_TOLERATION_SECONDS
from setpoint.apiserver.history.reader import HistoryReader
from setpoint.apiserver.history.when import Moments
from setpoint.cluster.cluster_copy import ClusterCopy, copied_items, copied_store
from setpoint.store.interface import KeyValue, Store


class CopySource:
    def __init__(
        self,
        store: Store,
        moments: Moments,
        toleration_seconds: tuple[int, int] = (DEFAULT_TOLERATION_SECONDS, DEFAULT_TOLERATION_SECONDS),
    ) -> None:
        """`store` returns decrypted values, `moments` finds the revisions of past moments. `toleration_seconds` are
        those of the server's flags (see `ClusterCopy`)."""
        self._store = store
        self._reader = HistoryReader(store)
        self._moments = moments
        self._toleration_seconds = toleration_seconds

    async def copy(self, at: str, now: datetime) -> ClusterCopy:
        """Return a copy of the cluster now, or at a moment of the past. Raises ApiError."""
        if not at:
            copy = await copied_store(self._store, now)
        else:
            moment = await self._moments.find(at, now)
            items: list[KeyValue] = []
            async for page in self._reader.pages_at("", moment.revision):
                items += [KeyValue(each.key, each.value, each.created, each.revision) for each in page if each.value]
            copy = copied_items(items, moment.revision, moment.at or now)
        return replace(copy, toleration_seconds=self._toleration_seconds)
