"""`create ingress`: create an Ingress from rules such as `host/path=service:port,tls=secret`."""

from __future__ import annotations

import re

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import array, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create.making import FLAGS, begin, metadata
from setpoint.meta.objects import Obj

_RULE = re.compile(r"[\w*\-.]*/.*=[\w\-]+:[\w\-]+(,tls=?([\w\-]+)?)?", re.ASCII)
_MAX_RULE = 4096


async def run(invocation: Invocation) -> None:
    making = begin(invocation)
    rules, default = invocation.flags.rule, invocation.flags.default_backend
    if not (default or rules):
        raise Failed(
            "not enough information provided: every ingress has to either specify a default-backend (which catches all "
            "traffic) or a list of rules (which catch specific paths)"
        )
    for rule in rules:
        if len(rule) > _MAX_RULE or not _RULE.match(rule):
            raise Failed(f"rule {rule} is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]")
    for annotation in invocation.flags.annotation:
        if "=" not in annotation:
            raise Failed(f"annotation {annotation} is invalid and should be in format key=[value]")
    if default and default.count(":") != 1:
        raise Failed("default-backend should be in format servicename:serviceport")
    annotations = dict(sorted(annotation.split("=", 1) for annotation in invocation.flags.annotation))
    spec: Obj = {}
    if invocation.flags.given("class") and getattr(invocation.flags, "class"):
        spec["ingressClassName"] = getattr(invocation.flags, "class")
    if default:
        spec["defaultBackend"] = _backend(default)
    if tls := _tls(rules):
        spec["tls"] = tls
    if rules:
        spec["rules"] = _rules(rules)
    ingress = {
        "kind": "Ingress",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": metadata(invocation, making.name, annotations=annotations),
        "spec": spec,
        "status": {"loadBalancer": {}},
    }
    await making.finish(ingress, "failed to create ingress: ")


def _tls(rules: list[str]) -> list[Obj]:
    """Return one entry for each secret with its hosts, in the order of the rules."""
    found: list[Obj] = []
    seen: set[str] = set()
    for rule in rules:
        parts = rule.split(",")
        host = rule.partition("/")[0]
        if len(parts) != 2 or host in seen:
            continue
        seen.add(host)
        secret = parts[1].partition("=")[2].partition("=")[0]
        entry = next((one for one in found if one.get("secretName", "") == secret), None)
        if entry is not None:
            entry.setdefault("hosts", []).append(host)
        elif host or secret:
            found.append(({"hosts": [host]} if host else {}) | ({"secretName": secret} if secret else {}))
    return [{key: one[key] for key in ("hosts", "secretName") if key in one} for one in found]


def _rules(rules: list[str]) -> list[Obj]:
    by_host: dict[str, list[Obj]] = {}
    for rule in rules:
        host, _, rest = rule.partition(",")[0].partition("/")
        by_host.setdefault(host, []).append(_path(rest))
    return [({"host": host} if host else {}) | {"http": {"paths": paths}} for host, paths in by_host.items()]


def _path(given: str) -> Obj:
    path, _, service = given.partition("=")
    path, kind = f"/{path}", "Exact"
    if path.endswith("*"):
        path, kind = path[:-1], "Prefix"
    return {"path": path, "pathType": kind, "backend": _backend(service.partition("=")[0])}


def _backend(given: str) -> Obj:
    name, port = given.split(":")[:2] if ":" in given else (given, "")
    is_number = port.isascii() and port.isdigit() and int(port[:12]) < 2**31
    return {"service": {"name": name, "port": {"number": int(port)} if is_number else {"name": port}}}


COMMAND = Command(
    "Create an ingress with the specified name",
    run,
    (
        *FLAGS,
        text("class", help="Ingress Class to be used"),
        array(
            "rule",
            help="Rule in format host/path=service:port[,tls=secretname]. A path that ends with '*' is a prefix.",
        ),
        text("default-backend", help="Default service for backend, in format of svcname:port"),
        array("annotation", help="Annotation to insert in the ingress object, in the format annotation=value"),
    ),
    usage="NAME --rule=host/path=service:port[,tls[=secret]]",
    aliases=("ing",),
    examples="""
    setpoint create ingress shop --rule="shop.example.com/*=web:80,tls=shop-certificate"

    setpoint create ingress all --default-backend=web:80 --class=nginx
    """,
)
