"""The async client: the only way in which components other than the API server access the system.

Callers may rely on these guarantees:
- an error of the server is raised as its API error (`setpoint.meta.errors`); a failure to reach it is `Unreachable`;
- a list is of one consistent revision regardless of its pages, and its items have their apiVersion and kind;
- a watch yields every change after its resourceVersion, in order and exactly once, until it ends. It ended at
  `Watch.resource_version`; the caller decides whether to continue from there;
- objects in a result may be shared within the process: read them, and copy them to make changes (see `interface`);
- nothing is retried implicitly except what the server asks to retry (Retry-After), and reads on a pooled connection
  that turned out to be closed.
"""

from setpoint.client.client import Client
from setpoint.client.failures import retry_on_conflict
from setpoint.client.interface import ObjectList, Reader, WatchEvent, Writer
from setpoint.client.kubeconfig import Impersonation
from setpoint.client.transport import Unreachable
from setpoint.kinds.catalog import Resource

__all__ = [
    "Client",
    "Impersonation",
    "ObjectList",
    "Reader",
    "Resource",
    "Unreachable",
    "WatchEvent",
    "Writer",
    "retry_on_conflict",
]
