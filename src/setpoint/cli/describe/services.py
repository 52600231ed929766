"""Services, Endpoints and EndpointSlices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from setpoint.cli.describe.context import DescribeContext, meta, spec, status
from setpoint.cli.describe.events import write_events
from setpoint.cli.describe.metadata import write_head
from setpoint.cli.describe.writer import Writer
from setpoint.client.interface import Obj
from setpoint.client.resources import builtin
from setpoint.kinds.columns import NONE, UNSET, labels_text
from setpoint.meta.errors import ApiError
from setpoint.meta.goformat import plain

_SHOWN_ENDPOINTS = 3


async def endpoint_slices(ctx: DescribeContext, namespace: str, service: str) -> list[Obj]:
    """List the EndpointSlices of a Service. Raise ApiError."""
    slices = builtin("endpointslices", "discovery.k8s.io")
    return await ctx.all(slices, namespace, label_selector=f"kubernetes.io/service-name={service}")


def endpoints_text(slices: Sequence[Obj], port: str) -> str:
    """Return the first few ready addresses of the port with this name."""
    if not slices:
        return NONE
    shown: list[str] = []
    count, more = 0, False
    for address, ready in _endpoints(slices, port):
        # As in kubectl, an unready address after the last one shown also counts as `more`.
        more = more or len(shown) == _SHOWN_ENDPOINTS
        if ready:
            count += 1
            if not more:
                shown.append(address)
    text = ",".join(shown)
    return f"{text} + {count - _SHOWN_ENDPOINTS} more..." if more else text


def _endpoints(slices: Sequence[Obj], port: str) -> Iterator[tuple[str, bool]]:
    for each in slices:
        ports = each.get("ports") or ()
        numbers = [one.get("port", 0) for one in ports if one.get("name", "") == port] if ports else [None]
        for number in numbers:
            for endpoint in each.get("endpoints") or ():
                address = endpoint["addresses"][0]
                if number is not None:
                    address = f"[{address}]:{number}" if ":" in address else f"{address}:{number}"
                yield address, (endpoint.get("conditions") or {}).get("ready") is not False


async def service(obj: Obj, ctx: DescribeContext) -> str:
    about, wanted = meta(obj), spec(obj)
    try:
        slices = await endpoint_slices(ctx, about.get("namespace", ""), about.get("name", ""))
    except ApiError:
        slices = []
    w = Writer()
    write_head(w, obj)
    w.field("Selector", labels_text(wanted.get("selector")))
    w.field("Type", wanted.get("type", ""))
    if wanted.get("ipFamilyPolicy") is not None:
        w.field("IP Family Policy", wanted["ipFamilyPolicy"])
    w.field("IP Families", ",".join(wanted.get("ipFamilies") or ()) or NONE)
    w.field("IP", wanted.get("clusterIP", ""))
    w.field("IPs", ",".join(wanted.get("clusterIPs") or ()) or NONE)
    if wanted.get("externalIPs"):
        w.field("External IPs", ",".join(wanted["externalIPs"]))
    if wanted.get("loadBalancerIP"):
        w.field("Desired LoadBalancer IP", wanted["loadBalancerIP"])
    if wanted.get("externalName"):
        w.field("External Name", wanted["externalName"])
    ingress = (status(obj).get("loadBalancer") or {}).get("ingress")
    if ingress:
        w.field("LoadBalancer Ingress", ", ".join(map(_ingress, ingress)))
    for port in wanted.get("ports") or ():
        _write_port(w, ctx, port, slices)
    _write_policies(w, ctx, wanted)
    await write_events(w, ctx, obj, "Service")
    return w.text()


def _ingress(point: Mapping[str, Any]) -> str:
    if not point.get("ip"):
        return str(point.get("hostname", ""))
    mode = f" ({point['ipMode']})" if point.get("ipMode") is not None else ""
    return f"{point['ip']}{mode}"


def _write_port(w: Writer, ctx: DescribeContext, port: Mapping[str, Any], slices: Sequence[Obj]) -> None:
    name, protocol = port.get("name") or UNSET, port.get("protocol", "")
    w.row(0, "Port:", name, f"{port.get('port', 0)}/{protocol}")
    w.field("TargetPort", f"{port.get('targetPort', 0)}/{protocol}")
    if port.get("appProtocol") is not None and ctx.minor >= 36:
        w.field("AppProtocol", port["appProtocol"])
    if port.get("nodePort"):
        w.row(0, "NodePort:", name, f"{port['nodePort']}/{protocol}")
    w.field("Endpoints", endpoints_text(slices, port.get("name", "")))


def _write_policies(w: Writer, ctx: DescribeContext, wanted: Mapping[str, Any]) -> None:
    w.field("Session Affinity", wanted.get("sessionAffinity", ""))
    if wanted.get("externalTrafficPolicy"):
        w.field("External Traffic Policy", wanted["externalTrafficPolicy"])
    if wanted.get("internalTrafficPolicy") is not None:
        w.field("Internal Traffic Policy", wanted["internalTrafficPolicy"])
    if wanted.get("healthCheckNodePort"):
        w.field("HealthCheck NodePort", wanted["healthCheckNodePort"])
    if wanted.get("loadBalancerSourceRanges"):
        w.field("LoadBalancer Source Ranges", ",".join(wanted["loadBalancerSourceRanges"]))
    if wanted.get("trafficDistribution") is not None and ctx.minor >= 34:
        w.field("Traffic Distribution", wanted["trafficDistribution"])


async def endpoints(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    write_head(w, obj)
    w.write(0, "Subsets:\n")
    for subset in obj.get("subsets") or ():
        for title, key in (("Addresses", "addresses"), ("NotReadyAddresses", "notReadyAddresses")):
            w.field(title, ",".join(each.get("ip", "") for each in subset.get(key) or ()) or NONE, 1)
        if subset.get("ports"):
            w.write(1, "Ports:\n")
            w.row(2, "Name", "Port", "Protocol")
            w.row(2, "----", "----", "--------")
            for port in subset["ports"]:
                w.row(2, port.get("name") or UNSET, port.get("port", 0), port.get("protocol", ""))
        w.write(0, "\n")
    await write_events(w, ctx, obj, "Endpoints")
    return w.text()


async def endpointslice(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    write_head(w, obj)
    w.field("AddressType", obj.get("addressType", ""))
    ports, targets = obj.get("ports") or (), obj.get("endpoints") or ()
    w.write(0, "Ports:\n" if ports else "Ports: <unset>\n")
    if ports:
        w.row(1, "Name", "Port", "Protocol")
        w.row(1, "----", "----", "--------")
        for port in ports:
            w.row(1, port.get("name") or UNSET, port.get("port", UNSET), port.get("protocol", ""))
    w.write(0, "Endpoints:\n" if targets else "Endpoints: <none>\n")
    for target in targets:
        w.field("- Addresses", ", ".join(target.get("addresses") or ()) or NONE, 1)
        w.write(2, "Conditions:\n")
        ready = (target.get("conditions") or {}).get("ready")
        w.field("Ready", UNSET if ready is None else plain(ready), 3)
        w.field("Hostname", target.get("hostname", UNSET), 2)
        reference = target.get("targetRef")
        if reference is not None:
            w.field("TargetRef", f"{reference.get('kind', '')}/{reference.get('name', '')}", 2)
        w.field("NodeName", target.get("nodeName", UNSET), 2)
        w.field("Zone", target.get("zone", UNSET), 2)
    await write_events(w, ctx, obj, "EndpointSlice")
    return w.text()
