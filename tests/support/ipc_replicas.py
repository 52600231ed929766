"""Replicas of a store over pairs of sockets, with the store in the same process."""

from __future__ import annotations

import os
import socket
from typing import Self

from setpoint.store.ipc.replica import StoreReplica
from setpoint.store.ipc.server import OwnedStore, ReplicaConnection, StoreServer
from setpoint.store.ipc.shared_numbers import SharedNumbers


class ServedStore(StoreServer):
    """The owner of a store, which it closes with the last replica."""

    def __init__(self, store: OwnedStore) -> None:
        self.descriptor = SharedNumbers.create()
        super().__init__(store, SharedNumbers(self.descriptor))
        self.replicas: set[OwnedReplica] = set()

    async def replica(self) -> OwnedReplica:
        ours, theirs = socket.socketpair()
        connection = await self.connect(ours)
        replica = await OwnedReplica.open(theirs, SharedNumbers(self.descriptor))
        assert isinstance(replica, OwnedReplica)
        replica.server, replica.connection = self, connection
        self.replicas.add(replica)
        return replica

    def report(self) -> None:
        """Report to the replicas now."""
        self._timer.cancel()
        self._report()

    async def end(self) -> None:
        self.close()
        await self.store.close()
        os.close(self.descriptor)


class OwnedReplica(StoreReplica):
    server: ServedStore | None = None
    connection: ReplicaConnection
    """The owner's end."""

    async def close(self) -> None:
        await super().close()
        server, self.server = self.server, None
        if server is not None:
            server.replicas.remove(self)
            if not server.replicas:
                await server.end()

    @classmethod
    async def of(cls, store: OwnedStore) -> Self:
        """Return the only replica of a store."""
        replica = await ServedStore(store).replica()
        assert isinstance(replica, cls)
        return replica
