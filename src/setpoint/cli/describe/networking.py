"""Services, Endpoints, EndpointSlices, Ingresses and their classes, NetworkPolicies, ServiceCIDRs and IPAddresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from setpoint.cli.describe.context import DescribeContext, Writer, meta, spec, status
from setpoint.cli.describe.events import write_events
from setpoint.cli.describe.metadata import write_annotations, write_head, write_labels
from setpoint.client.resources import builtin
from setpoint.kinds.cell_texts import NONE, UNSET, labels_text
from setpoint.meta.errors import ApiError
from setpoint.meta.goformat import plain
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import format_labels

_SHOWN_ENDPOINTS = 3
_INDENT = "    "


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


async def ingress(obj: Obj, ctx: DescribeContext) -> str:
    about, wanted = meta(obj), spec(obj)
    namespace = about.get("namespace", "")
    w = Writer()
    w.field("Name", about.get("name", ""))
    write_labels(w, "Labels", about.get("labels"))
    w.field("Namespace", namespace)
    points = (status(obj).get("loadBalancer") or {}).get("ingress") or ()
    addresses = {each.get("ip") or each.get("hostname", "") for each in points} - {""}
    w.field("Address", ",".join(sorted(addresses)))
    w.field("Ingress Class", wanted.get("ingressClassName", NONE))
    backend = wanted.get("defaultBackend")
    otherwise = "<default>" if backend is None else await _backend(ctx, namespace, backend)
    w.field("Default backend", otherwise)
    if wanted.get("tls"):
        w.write(0, "TLS:\n")
        for each in wanted["tls"]:
            secret, hosts = each.get("secretName", ""), ",".join(each.get("hosts") or ())
            w.write(1, f"{secret} terminates {hosts}\n" if secret else f"SNI routes {hosts}\n")
    w.write(0, "Rules:\n  Host\tPath\tBackends\n")
    w.row(1, "----", "----", "--------")
    rules = [rule for rule in wanted.get("rules") or () if rule.get("http") is not None]
    for rule in rules:
        w.write(1, f"{rule.get('host') or '*'}\t\n")
        for path in rule["http"].get("paths") or ():
            shown = await _backend(ctx, namespace, path.get("backend") or {})
            w.write(2, f"\t{path.get('path', '')} \t{shown}\n")
    if not rules:
        w.row(1, "*", "*", otherwise)
    write_annotations(w, "Annotations", about.get("annotations"))
    await write_events(w, ctx, obj, "Ingress")
    return w.text()


async def _backend(ctx: DescribeContext, namespace: str, backend: Mapping[str, Any]) -> str:
    if backend.get("service") is not None:
        return await _service_backend(ctx, namespace, backend["service"])
    if backend.get("resource") is not None:
        target = backend["resource"]
        group = NONE if target.get("apiGroup") is None else target["apiGroup"]
        return f"APIGroup: {group}, Kind: {target.get('kind', '')}, Name: {target.get('name', '')}"
    return ""


async def _service_backend(ctx: DescribeContext, namespace: str, wanted: Mapping[str, Any]) -> str:
    name, port = wanted.get("name", ""), wanted.get("port") or {}
    title = f"{name}:{port.get('number') or port.get('name', '')}"
    try:
        slices = await endpoint_slices(ctx, namespace, name)
        service = await ctx.reader.get(builtin("services"), name, namespace)
    except ApiError as error:
        return f"{title} (<error: {error.message}>)"
    found = ""
    for each in spec(service).get("ports") or ():
        if port.get("number") == each.get("port") or (port.get("name") and port["name"] == each.get("name")):
            found = each.get("name", "")
    return f"{title} ({endpoints_text(slices, found)})"


async def ingressclass(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    write_head(w, obj, namespaced=False)
    w.field("Controller", spec(obj).get("controller", ""))
    parameters = spec(obj).get("parameters")
    if parameters is not None:
        w.write(0, "Parameters:\n")
        if parameters.get("apiGroup") is not None:
            w.field("APIGroup", parameters["apiGroup"], 1)
        w.field("Kind", parameters.get("kind", ""), 1)
        w.field("Name", parameters.get("name", ""), 1)
    await write_events(w, ctx, obj, "IngressClass")
    return w.text()


async def networkpolicy(obj: Obj, ctx: DescribeContext) -> str:
    about, wanted = meta(obj), spec(obj)
    w = Writer()
    w.field("Name", about.get("name", ""))
    w.field("Namespace", about.get("namespace", ""))
    w.field("Created on", ctx.plain_time(about.get("creationTimestamp")))
    write_labels(w, "Labels", about.get("labels"))
    write_annotations(w, "Annotations", about.get("annotations"))
    w.write(0, "Spec:\n")
    w.write(1, "PodSelector: ")
    selector = wanted.get("podSelector") or {}
    every = not selector.get("matchLabels") and not selector.get("matchExpressions")
    none = "<none> (Allowing the specific traffic to all pods in this namespace)"
    w.write(2, f"{none if every else format_labels(selector)}\n")
    types = wanted.get("policyTypes") or ()
    for direction, kind, peers, peer in (
        ("ingress", "Ingress", "from", "source"),
        ("egress", "Egress", "to", "destination"),
    ):
        if kind in types:
            w.write(1, f"Allowing {direction} traffic:\n")
            _write_rules(w, wanted.get(direction) or (), direction, peers, peer)
        else:
            w.write(1, f"Not affecting {direction} traffic\n")
    w.write(1, f"Policy Types: {', '.join(types) or NONE}\n")
    return w.text()


def _write_rules(w: Writer, rules: Sequence[ObjView], direction: str, peers: str, peer: str) -> None:
    if not rules:
        w.write(0, f"{_INDENT}<none> (Selected pods are isolated for {direction} connectivity)\n")
    for at, rule in enumerate(rules):
        if at:
            w.write(0, f"{_INDENT}----------\n")
        if not rule.get("ports"):
            w.write(0, f"{_INDENT}To Port: <any> (traffic allowed to all ports)\n")
        for port in rule.get("ports") or ():
            number, protocol = port.get("port", "<nil>"), port.get("protocol", "TCP")
            if port.get("endPort") is None:
                w.write(0, f"{_INDENT}To Port: {number}/{protocol}\n")
            else:
                w.write(0, f"{_INDENT}To Port Range: {number}-{port['endPort']}/{protocol}\n")
        if not rule.get(peers):
            w.write(0, f"{_INDENT}{peers.title()}: <any> (traffic not restricted by {peer})\n")
        for each in rule.get(peers) or ():
            w.write(0, f"{_INDENT}{peers.title()}:\n")
            _write_peer(w, each)


def _write_peer(w: Writer, peer: ObjView) -> None:
    pods, namespaces, block = (peer.get(key) for key in ("podSelector", "namespaceSelector", "ipBlock"))
    if namespaces is not None:
        w.write(1, f"{_INDENT}NamespaceSelector: {format_labels(namespaces)}\n")
    if pods is not None:
        w.write(1, f"{_INDENT}PodSelector: {format_labels(pods)}\n")
    if pods is None and namespaces is None and block is not None:
        w.write(1, f"{_INDENT}IPBlock:\n")
        w.write(2, f"{_INDENT}CIDR: {block.get('cidr', '')}\n")
        w.write(2, f"{_INDENT}Except: {', '.join(block.get('except') or ())}\n")


async def servicecidr(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    write_head(w, obj, namespaced=False)
    w.field("CIDRs", ", ".join(spec(obj).get("cidrs") or ()))
    if status(obj).get("conditions"):
        w.write(0, "Status:\n")
        write_timed_conditions(w, ctx, obj)
    await write_events(w, ctx, obj, "ServiceCIDR")
    return w.text()


def write_timed_conditions(w: Writer, ctx: DescribeContext, obj: Obj) -> None:
    conditions = status(obj).get("conditions")
    if not conditions:
        return
    w.write(0, "Conditions:\n")
    w.row(1, "Type", "Status", "LastTransitionTime", "Reason", "Message")
    w.row(1, "----", "------", "------------------", "------", "-------")
    for each in conditions:
        moment = ctx.moment(each.get("lastTransitionTime"))
        w.row(1, each.get("type", ""), each.get("status", ""), moment, each.get("reason", ""), each.get("message", ""))


async def ipaddress(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    write_head(w, obj, namespaced=False)
    parent = spec(obj).get("parentRef")
    if parent is not None:
        w.write(0, "Parent Reference:\n")
        for key in ("group", "resource", "namespace", "name"):
            w.field(key.title(), parent.get(key, ""), 1)
    await write_events(w, ctx, obj, "IPAddress")
    return w.text()
