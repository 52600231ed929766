"""Create a client for the cluster of a kubeconfig."""

from __future__ import annotations

from setpoint.client.access import Access
from setpoint.client.client import Client
from setpoint.client.https import HttpsTransport
from setpoint.meta.clock import Clock


def connect(access: Access, clock: Clock, *, user_agent: str = "setpoint", timeout: float = 60.0) -> Client:
    """Return a client for `access`, from `find_access` or `in_cluster` of `kubeconfig`. Nothing is sent yet."""
    transport = HttpsTransport(access, clock, timeout=timeout)
    return Client(
        transport,
        clock,
        user_agent=user_agent,
        impersonate=access.impersonate,
        default_namespace=access.namespace,
    )
