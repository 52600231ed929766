"""Removal of a store from etcd."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.store.etcd import messages
from setpoint.store.etcd.client import EtcdClient
from setpoint.wire.tls import TlsClient


async def clear_prefix(endpoints: Sequence[str], prefix: str, tls: TlsClient | None) -> None:
    """Delete everything under `prefix`, which must end with a slash, in one transaction. Raises StoreError."""
    client = EtcdClient(endpoints, tls)
    try:
        request, first = messages.TxnRequest(), prefix.encode()
        everything = request.success.add().request_delete_range
        everything.key, everything.range_end = first, first[:-1] + bytes([first[-1] + 1])
        await client.txn(request)
    finally:
        client.close()
