"""The async client: how every component but the API server sees the system.

What callers may rely on:
- a failure of the server is the error it raised (`setpoint.meta.errors`); a failure to reach it is `Unreachable`;
- a list is one consistent revision however many pages it took, and its items say their apiVersion and kind;
- a watch gives every change after its resourceVersion, in order and once, until it ends; it never skips. Where it
  ended is in `Watch.resource_version`; going on from there is the caller's decision;
- objects that are handed out belong to the caller, who may change them;
- nothing is retried behind the caller's back but what the server asked to have retried (Retry-After), and reads on a
  kept connection that turned out to be closed.
"""

from setpoint.client.client import Client
from setpoint.client.impersonation import Impersonation
from setpoint.client.interface import ObjectList, Reader, WatchEvent, Writer
from setpoint.client.retry import retry_on_conflict
from setpoint.client.transport import Unreachable
from setpoint.client.watch import Watch
from setpoint.kinds.catalog import Resource

__all__ = [
    "Client", "Impersonation", "ObjectList", "Reader", "Resource", "Unreachable", "Watch", "WatchEvent", "Writer",
    "retry_on_conflict",
]  # fmt: skip
