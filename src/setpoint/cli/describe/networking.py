"""NetworkPolicies, ServiceCIDRs and IPAddresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.cli.describe.context import DescribeContext, meta, spec, status
from setpoint.cli.describe.events import write_events
from setpoint.cli.describe.metadata import write_annotations, write_head, write_labels
from setpoint.cli.describe.writer import Writer
from setpoint.client.interface import Obj
from setpoint.kinds.columns import NONE
from setpoint.meta.selectors import format_labels

Item = Mapping[str, Any]
_INDENT = "    "


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


def _write_rules(w: Writer, rules: Sequence[Item], direction: str, peers: str, peer: str) -> None:
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


def _write_peer(w: Writer, peer: Item) -> None:
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
