"""Naming of a pod and name resolution: hostname, DNS, host aliases, scheduling gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.kinds.core.podspec.internal import as_json
from setpoint.meta.field import Errors, duplicate, forbidden, invalid, required, too_long
from setpoint.meta.names import dns1123_subdomain, dns1123_subdomain_underscore, ip_legacy, qualified_name

Item = Mapping[str, Any]
_MAX_NAMESERVERS, _MOST_SEARCHES, _LONGEST_SEARCHES, _LONGEST_HOSTNAME = 3, 32, 2048, 64


def validate_dns_config(config: Item | None, policy: str, path: str, errs: Errors) -> None:
    if policy == "None":
        if config is None:
            errs.append(required(path, "must provide `dnsConfig` when `dnsPolicy` is None"))
            return
        if not config.get("nameservers"):
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            errs.append(required(f"{path}.nameservers", text))
            return
    if config is None:
        return
    servers, searches = config.get("nameservers", ()), config.get("searches", ())
    if len(servers) > _MAX_NAMESERVERS:
        text = f"must not have more than {_MAX_NAMESERVERS} nameservers"
        errs.append(invalid(f"{path}.nameservers", as_json(servers), text))
    for i, server in enumerate(servers):
        for text in ip_legacy(server):
            errs.append(invalid(f"{path}.nameservers[{i}]", server, text))
    if len(searches) > _MOST_SEARCHES:
        text = f"must not have more than {_MOST_SEARCHES} search paths"
        errs.append(invalid(f"{path}.searches", as_json(searches), text))
    if len(" ".join(searches).encode()) > _LONGEST_SEARCHES:
        text = f"must not have more than {_LONGEST_SEARCHES} characters (including spaces) in the search list"
        errs.append(invalid(f"{path}.searches", as_json(searches), text))
    for i, search in enumerate(searches):
        if search != ".":
            search = search.removesuffix(".")
            for text in dns1123_subdomain_underscore(search):
                errs.append(invalid(f"{path}.searches[{i}]", search, text))
    for i, option in enumerate(config.get("options", ())):
        if not option.get("name"):
            errs.append(required(f"{path}.options[{i}]", "must not be empty"))


def validate_hostname_override(spec: Item, path: str, errs: Errors) -> None:
    name = spec["hostnameOverride"]
    if spec.get("setHostnameAsFQDN"):
        errs.append(forbidden(path, "may not be specified when setHostnameAsFQDN is true"))
    if spec.get("hostNetwork"):
        errs.append(forbidden(path, "may not be specified when hostNetwork is true"))
    if len(name.encode()) > _LONGEST_HOSTNAME:
        errs.append(too_long(path, _LONGEST_HOSTNAME))
    for text in dns1123_subdomain(name):
        errs.append(invalid(path, name, text))


def validate_host_aliases(aliases: Sequence[Item], path: str, errs: Errors) -> None:
    for i, alias in enumerate(aliases):
        address = alias.get("ip", "")
        for text in ip_legacy(address):
            errs.append(invalid(f"{path}[{i}].ip", address, text))
        for j, name in enumerate(alias.get("hostnames", ())):
            for text in dns1123_subdomain(name):
                errs.append(invalid(f"{path}[{i}].hostnames[{j}]", name, text))


def validate_readiness_gates(gates: Sequence[Item], path: str, errs: Errors) -> None:
    for i, gate in enumerate(gates):
        condition = gate.get("conditionType", "")
        for text in qualified_name(condition):
            errs.append(invalid(f"{path}[{i}].conditionType", condition, text))


def validate_scheduling_gates(gates: Sequence[Item], path: str, errs: Errors) -> None:
    seen: set[str] = set()
    for i, gate in enumerate(gates):
        name = gate.get("name", "")
        for text in qualified_name(name):
            errs.append(invalid(f"{path}[{i}]", name, text))
        if name in seen:
            errs.append(duplicate(f"{path}[{i}]", name))
        seen.add(name)
