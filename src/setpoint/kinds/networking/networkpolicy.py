"""NetworkPolicy: which traffic may reach, and leave, the Pods it selects."""

from __future__ import annotations

from collections.abc import Container, Iterator

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.addresses import _parse_cidr_sloppy, cidr_warnings, validate_cidr
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required
from setpoint.meta.names import port_name, port_number
from setpoint.meta.objectmeta import validate_label_selector
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import format_labels

_DIRECTIONS = (("ingress", "from"), ("egress", "to"))


class NetworkPolicyStrategy(Strategy):
    has_generation = True

    def default(self, obj: Obj) -> None:
        spec = obj.setdefault("spec", {})
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
        for direction, _ in _DIRECTIONS:
            for rule in spec.get(direction, ()):
                for port in rule.get("ports", ()):
                    if port.get("protocol") is None:
                        port["protocol"] = "TCP"

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_spec(obj.get("spec") or {}, errs, (), False)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        before = old.get("spec") or {}
        known = {text for _, block in _blocks(before) for text in (block.get("cidr", ""), *block.get("except", ()))}
        already: Errors = []
        validate_label_selector(before.get("podSelector"), "", already)
        _validate_spec(obj.get("spec") or {}, errs, known, bool(already))

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        warnings: list[str] = []
        for path, block in _blocks(obj.get("spec") or {}):
            warnings += cidr_warnings(block.get("cidr", ""), f"{path}.cidr")
            for i, text in enumerate(block.get("except", ())):
                warnings += cidr_warnings(text, f"{path}.except[{i}]")
        return warnings

    columns = (
        NAME,
        Column(
            "Pod-Selector",
            lambda obj, now: format_labels((obj.get("spec") or {}).get("podSelector") or {}),
            description="Which Pods it is about.",
        ),
        AGE,
    )


def _blocks(spec: Obj) -> Iterator[tuple[str, Obj]]:
    for direction, peers in _DIRECTIONS:
        for i, rule in enumerate(spec.get(direction, ())):
            for j, peer in enumerate(rule.get(peers, ())):
                if peer.get("ipBlock") is not None:
                    yield f"spec.{direction}[{i}].{peers}[{j}].ipBlock", peer["ipBlock"]


def _validate_spec(spec: Obj, errs: Errors, known: Container[str], allow_invalid_values: bool) -> None:
    validate_label_selector(
        spec.get("podSelector"), "spec.podSelector", errs, allow_invalid_values=allow_invalid_values
    )
    for direction, peers in _DIRECTIONS:
        for i, rule in enumerate(spec.get(direction, ())):
            path = f"spec.{direction}[{i}]"
            for j, port in enumerate(rule.get("ports", ())):
                _validate_port(port, f"{path}.ports[{j}]", errs)
            for j, peer in enumerate(rule.get(peers, ())):
                _validate_peer(peer, f"{path}.{peers}[{j}]", errs, known, allow_invalid_values)
    types = spec.get("policyTypes", [])
    if len(types) > 2:
        errs.append(invalid("spec.policyTypes", types, "may not specify more than two policyTypes"))
    else:
        for i, kind in enumerate(types):
            if kind not in ("Ingress", "Egress"):
                errs.append(not_supported(f"spec.policyTypes[{i}]", kind, ("Ingress", "Egress")))
    # Upstream declares this rule at the type and therefore reports it last.
    errs.extend(required(f"{path}.cidr") for path, block in _blocks(spec) if not block.get("cidr"))


def _validate_port(port: Obj, path: str, errs: Errors) -> None:
    protocol, number, end = port.get("protocol"), port.get("port"), port.get("endPort")
    if protocol is not None and protocol not in ("TCP", "UDP", "SCTP"):
        errs.append(not_supported(f"{path}.protocol", protocol, ("TCP", "UDP", "SCTP")))
    if number is None:
        if end is not None:
            errs.append(invalid(f"{path}.endPort", end, "may not be specified when `port` is not specified"))
    elif isinstance(number, int):
        errs.extend(invalid(f"{path}.port", number, text) for text in port_number(number))
        if end is not None:
            if end < number:
                errs.append(invalid(f"{path}.endPort", end, "must be greater than or equal to `port`"))
            errs.extend(invalid(f"{path}.endPort", end, text) for text in port_number(end))
    else:
        if end is not None:
            errs.append(invalid(f"{path}.endPort", end, "may not be specified when `port` is non-numeric"))
        errs.extend(invalid(f"{path}.port", number, text) for text in port_name(number))


def _validate_peer(peer: Obj, path: str, errs: Errors, known: Container[str], allow_invalid_values: bool) -> None:
    given = 0
    for name in ("podSelector", "namespaceSelector"):
        if peer.get(name) is not None:
            given += 1
            validate_label_selector(peer[name], f"{path}.{name}", errs, allow_invalid_values=allow_invalid_values)
    block = peer.get("ipBlock")
    if block is not None:
        given += 1
        _validate_block(block, f"{path}.ipBlock", errs, known)
    if given == 0:
        errs.append(required(path, "must specify a peer"))
    elif given > 1 and block is not None:
        errs.append(forbidden(path, "may not specify both ipBlock and another peer"))


def _validate_block(block: Obj, path: str, errs: Errors, known: Container[str]) -> None:
    cidr = block.get("cidr", "")
    if not cidr:
        return
    validate_cidr(cidr, f"{path}.cidr", errs, known)
    outer = _parse_cidr_sloppy(cidr)
    if outer is None:
        return
    for i, text in enumerate(block.get("except", ())):
        validate_cidr(text, f"{path}.except[{i}]", errs, known)
        inner = _parse_cidr_sloppy(text)
        if inner is None:
            continue
        address, network = inner[1].network_address, outer[1]
        if address not in network or network.prefixlen >= inner[1].prefixlen:
            errs.append(invalid(f"{path}.except[{i}]", text, "must be a strict subset of `cidr`"))


STRATEGY = NetworkPolicyStrategy()
