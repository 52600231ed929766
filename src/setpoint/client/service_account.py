"""Act as a service account, with tokens that are requested on use and renewed before they expire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from setpoint.client.authentication import Credential
from setpoint.client.client import Client
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, NotFound

_ACCOUNTS = builtin("serviceaccounts")
_LASTING = 3600
_USED_FOR = 0.8
"""The share of a token's lifetime after which a new one is requested."""


def as_service_account(access: Access, client: Client, clock: Clock, name: str, namespace: str) -> Access:
    """Return access to the same server as this account, which is created if it does not exist. `client` requests the
    tokens."""
    return Access(
        access.server,
        access.ca,
        access.insecure,
        access.tls_server_name,
        source=_tokens(client, clock, name, namespace),
        namespace=access.namespace,
        in_cluster=access.in_cluster,
    )


def _tokens(client: Client, clock: Clock, name: str, namespace: str) -> Callable[[], Awaitable[Credential]]:
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _LASTING},
    }

    async def ask() -> str:
        made = await client.create(request, resource=_ACCOUNTS, name=name, namespace=namespace, subresource="token")
        return str(made["status"]["token"])

    async def obtain() -> Credential:
        now = clock.now()
        try:
            token = await ask()
        except NotFound:
            meta = {"name": name, "namespace": namespace}
            with suppress(AlreadyExists):
                await client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
            token = await ask()
        return Credential(token=token, expires=now + timedelta(seconds=_LASTING * _USED_FOR))

    return obtain
