"""Ingresses and their classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.cli.describe.context import DescribeContext, meta, spec, status
from setpoint.cli.describe.events import write_events
from setpoint.cli.describe.metadata import write_annotations, write_head, write_labels
from setpoint.cli.describe.services import endpoint_slices, endpoints_text
from setpoint.cli.describe.writer import Writer
from setpoint.client.interface import Obj
from setpoint.client.resources import builtin
from setpoint.kinds.columns import NONE
from setpoint.meta.errors import ApiError


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
