"""A disk cache of discovery documents, because discovery takes longer than most commands."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setpoint.client.discovery import Discovery, Fetch
from setpoint.meta.json_codec import decode_json, encode_json

if TYPE_CHECKING:
    from setpoint.client import Client
    from setpoint.client.kubeconfig import Access
    from setpoint.meta.clock import Clock

_KEPT_FOR = 600.0


def cached_discovery(client: Client, folder: Path, access: Access, clock: Clock) -> Discovery:
    """Return a discovery that reads recent documents from the folder and stores new ones there.

    A resource that is not found is looked up on the server again, so that a new kind is available at once.
    """
    place = folder / "setpoint" / re.sub(r"[^A-Za-z0-9._-]+", "_", access.server) / "discovery.json"

    async def fetch(path: str, accept: str) -> dict[str, Any]:
        return await client.sender.json("GET", path, accept=accept)

    return _CachedDiscovery(fetch, place, clock)


class _CachedDiscovery(Discovery):
    def __init__(self, fetch: Fetch, place: Path, clock: Clock) -> None:
        super().__init__(self._saving)
        self._request, self._place, self._clock = fetch, place, clock
        self._on_disk = self._load()

    async def resources(self, *, fresh: bool = False) -> Any:
        if fresh:
            self._on_disk = {}
        return await super().resources(fresh=fresh)

    async def _saving(self, path: str, accept: str) -> dict[str, Any]:
        known = self._on_disk.get(path)
        if known is None:
            known = self._on_disk[path] = await self._request(path, accept)
            self._store()
        return known

    def _load(self) -> dict[str, dict[str, Any]]:
        try:
            age = self._clock.now().timestamp() - self._place.stat().st_mtime
            if not 0 <= age < _KEPT_FOR:
                return {}
            found = decode_json(self._place.read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _store(self) -> None:
        # Written atomically, because many commands may run at once. A folder that cannot be written means no cache.
        with suppress(OSError):
            self._place.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            own = self._place.with_name(f"{self._place.name}.{os.getpid()}")
            own.write_bytes(encode_json(self._on_disk))
            os.replace(own, self._place)
