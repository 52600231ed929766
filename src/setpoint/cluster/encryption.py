"""Encryption at rest from its flags: the configuration file, put between the server and its store, and followed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from hashlib import sha256
from os import urandom
from pathlib import Path

from setpoint.apiserver.server import ApiServer
from setpoint.cluster.config import ConfigError
from setpoint.cluster.encryption_config import EncryptionConfigError, read_encryption_config
from setpoint.cluster.followed_file import FollowedFile
from setpoint.meta.clock import Clock
from setpoint.meta.exposition import Family, counter, gauge
from setpoint.store.encryption.encrypted_store import EncryptedStore
from setpoint.store.interface import Store

log = logging.getLogger("setpoint.cluster")


class Encryption:
    """`store` is what the server is to use. `follow` is for those who want changes of the file to take effect."""

    def __init__(self, path: str, below: Store, clock: Clock) -> None:
        """Raises ConfigError."""
        self._path = path
        self._clock = clock
        self._reloads = {"success": 0, "failure": 0}
        self._last: dict[str, float] = {}
        try:
            self._data = Path(path).read_bytes()
            transformers = read_encryption_config(self._data, path, urandom)
        except OSError as error:
            why = f'error reading encryption provider configuration file "{path}": open {path}'
            raise ConfigError(
                f"error while parsing file: error while loading file: {why}: {(error.strerror or '').lower()}"
            ) from None
        except EncryptionConfigError as error:
            raise ConfigError(str(error)) from None
        self.store = EncryptedStore(below, transformers)

    def follow(self, api: ApiServer) -> FollowedFile:
        """Whoever runs it lets changes take effect. What cannot be used changes nothing; and what was read before
        stays readable in memory."""
        return FollowedFile(self._path, self._data, partial(self._take, api), self._clock)

    async def _take(self, api: ApiServer, data: bytes) -> bool:
        try:
            self.store.transformers = read_encryption_config(data, self._path, urandom)
        except EncryptionConfigError as error:
            self._count("failure")
            log.error("error processing encryption config file %s: %s", self._path, error)
            return True
        self._data = data
        for cache in list(api.caches.values()):
            if cache.corrupt:
                await cache.read_again()
        self._count("success")
        log.info("the encryption configuration %s is in force", self._path)
        if lost := await self.store.unreadable():
            log.error(
                "stored objects need a key that %s does not have any more (%d, such as %s): put it back before the "
                "server is restarted", self._path, len(lost), lost[0],
            )  # fmt: skip
        return True

    def _count(self, status: str) -> None:
        self._reloads[status] += 1
        self._last[status] = self._clock.now().timestamp()

    def families(self) -> Iterable[Family]:
        yield counter(
            "apiserver_encryption_config_controller_automatic_reloads_total",
            "Total number of reload successes and failures of encryption configuration.",
            [({"status": status}, count) for status, count in self._reloads.items()],
        )
        yield gauge(
            "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds",
            "Timestamp of the last successful or failed automatic reload of encryption configuration.",
            [({"status": status}, moment) for status, moment in self._last.items()],
        )
        yield gauge(
            "apiserver_encryption_config_controller_last_config_info",
            "Information about the last applied encryption configuration with hash as label.",
            [({"hash": f"sha256:{sha256(self._data).hexdigest()}"}, 1.0)],
        )
