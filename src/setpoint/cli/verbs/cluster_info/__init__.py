"""`cluster-info`: print the addresses of the control plane and its services."""

from __future__ import annotations

from typing import Any

from setpoint.cli.command import Command, Lazy
from setpoint.cli.invocation import Invocation
from setpoint.client.resources import builtin

Obj = dict[str, Any]


async def run(call: Invocation) -> None:
    namespace = call.flags.namespace or "kube-system"
    found = await call.client.list(builtin("services"), namespace, label_selector="kubernetes.io/cluster-service=true")
    host = call.access.server.rstrip("/")
    _tell(call, "Kubernetes control plane", host)
    for service in found.items:
        meta = service["metadata"]
        _tell(call, (meta.get("labels") or {}).get("kubernetes.io/name") or meta["name"], _link(service, host))
    call.print("\nTo further debug and diagnose cluster problems, use 'setpoint cluster-info dump'.")


def _tell(call: Invocation, name: str, link: str) -> None:
    green, yellow, plain = ("\x1b[0;32m", "\x1b[0;33m", "\x1b[0m") if call.io.colour else ("", "", "")
    call.print(f"{green}{name}{plain} is running at {yellow}{link}{plain}")


def _link(service: Obj, host: str) -> str:
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    ports = (service.get("spec") or {}).get("ports") or ()
    if ingress:
        address = ingress[0].get("ip") or ingress[0].get("hostname", "")
        return "".join(f"http://{address}:{port['port']} " for port in ports)
    name = service["metadata"]["name"]
    if ports:
        named = ports[0].get("name", "")
        if named == "https" or ports[0].get("port") == 443:
            name = f"https:{name}:{named}"
        elif named:
            name = f"{name}:{named}"
    return f"{host}/api/v1/namespaces/{service['metadata']['namespace']}/services/{name}/proxy"


COMMAND = Command(
    "Display cluster information",
    run,
    children={"dump": Lazy("Dump relevant information for debugging and diagnosis", f"{__name__}.dump")},
    examples="""
    setpoint cluster-info
    """,
)
