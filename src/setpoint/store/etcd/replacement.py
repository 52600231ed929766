"""Replacement of the content of a store at etcd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from setpoint.store.etcd import messages, stored_value
from setpoint.store.etcd.client import EtcdClient
from setpoint.store.etcd.keyspace import OFFSET, after_all, check_own_key
from setpoint.store.interface import Put
from setpoint.wire.tls import TlsClient


async def replace_content(
    endpoints: Sequence[str], prefix: str, tls: TlsClient | None, first_revision: int, content: Sequence[Put] = ()
) -> None:
    """Replace everything under `prefix`, which must end with a slash, by `content`, in one transaction.

    Every revision of the store, now and after it is opened again, is then greater than `first_revision`. Servers that
    have the former content open fail. Raises StoreError."""
    client = EtcdClient(endpoints, tls)
    try:
        current = (await client.range(messages.RangeRequest(key=b"\0", keys_only=True))).header.revision
        values = {OFFSET: b"%d" % max(0, first_revision - current)}
        for op in content:
            check_own_key(op.key)
            values[op.key] = stored_value.encode(op, b"")
        request, own = messages.TxnRequest(), prefix.encode()
        after = own
        # etcd refuses to delete and to put a key in one transaction: what is between the keys is deleted.
        for key, value in sorted((own + key.encode(), value) for key, value in values.items()):
            _delete(request, after, key)
            put = request.success.add().request_put
            put.key, put.value = key, value
            after = key + b"\0"
        _delete(request, after, after_all(own))
        await client.txn(request)
    finally:
        client.close()


def _delete(request: Any, start: bytes, end: bytes) -> None:
    """Add the deletion of all keys from `start` up to and without `end`."""
    between = request.success.add().request_delete_range
    between.key, between.range_end = start, end
