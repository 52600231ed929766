"""Describe the containers of a Pod or template: images, states, resources, probes, environment and mounts."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Sequence

from setpoint.cli.describe.context import DescribeContext, Writer, meta
from setpoint.cli.describe.metadata import truth
from setpoint.kinds.cell_texts import NONE
from setpoint.meta.goformat import plain, quote
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import Quantity, canonical, parse

_SAFE_IN_PATH = "$&+,/:;=@"
_SAFE_IN_HOST = "!$&'()*+,;=:[]<>\""


def probe_text(probe: ObjView, minor: int) -> str:
    marks = ("successThreshold", "failureThreshold") if minor >= 37 else ("#success", "#failure")
    times = (
        f"delay={probe.get('initialDelaySeconds', 0)}s timeout={probe.get('timeoutSeconds', 0)}s "
        f"period={probe.get('periodSeconds', 0)}s {marks[0]}={probe.get('successThreshold', 0)} "
        f"{marks[1]}={probe.get('failureThreshold', 0)}"
    )
    return f"{_action(probe)} {times}"


def _action(probe: ObjView) -> str:
    if probe.get("exec") is not None:
        return f"exec {plain(probe['exec'].get('command') or [])}"
    if probe.get("httpGet") is not None:
        return f"http-get {_address(probe['httpGet'])}"
    if probe.get("tcpSocket") is not None:
        socket = probe["tcpSocket"]
        return f"tcp-socket {socket.get('host', '')}:{socket.get('port', 0)}"
    if probe.get("grpc") is not None:
        grpc = probe["grpc"]
        return f"grpc <pod>:{grpc.get('port', 0)} {grpc.get('service') or ''}"
    return "unknown"


def _address(get: ObjView) -> str:
    host, port = get.get("host", ""), str(get.get("port", 0))
    if port:
        host = f"[{host}]:{port}" if ":" in host or "%" in host else f"{host}:{port}"
    path = urllib.parse.quote(get.get("path", ""), safe=_SAFE_IN_PATH)
    if path and host and not path.startswith("/"):
        path = "/" + path
    scheme = get.get("scheme", "").lower()
    return f"{scheme}:" * bool(scheme) + f"//{urllib.parse.quote(host, safe=_SAFE_IN_HOST)}{path}"


Resolve = Callable[[str, str], str]
"""Returns the value of a field, from the API version of the reference and the field path."""


def resolve_in(pod: Obj) -> Resolve:
    """Return a resolver for a Pod's name and namespace; kubectl does not resolve other fields either."""

    def resolve(api_version: str, path: str) -> str:
        if api_version.count("/") > 1 or path not in ("metadata.name", "metadata.namespace"):
            return ""
        return str(meta(pod).get(path.removeprefix("metadata."), ""))

    return resolve


def write_environment(w: Writer, container: ObjView, resolve: Resolve | None) -> None:
    if container.get("envFrom"):
        w.write(2, "Environment Variables from:\n")
        for source in container["envFrom"]:
            _write_source(w, source)
    w.write(2, f"Environment:{'' if container.get('env') else chr(9) + '<none>'}\n")
    for variable in container.get("env") or ():
        _write_variable(w, container, variable, resolve)


def _write_source(w: Writer, source: ObjView) -> None:
    origin, named = "", {}
    if source.get("configMapRef") is not None:
        origin, named = "ConfigMap", source["configMapRef"]
    elif source.get("secretRef") is not None:
        origin, named = "Secret", source["secretRef"]
    if source.get("prefix"):
        origin += f" with prefix '{source['prefix']}'"
    w.row(3, named.get("name", ""), origin, f"Optional: {optional(named)}")


def _write_variable(w: Writer, container: ObjView, variable: ObjView, resolve: Resolve | None) -> None:
    name, origin = variable.get("name", ""), variable.get("valueFrom")
    if origin is None:
        for at, line in enumerate(variable.get("value", "").split("\n")):
            w.write(3, f"\t{line}\n" if at else f"{name}:\t{line}\n")
    elif origin.get("fieldRef") is not None:
        version, path = origin["fieldRef"].get("apiVersion", ""), origin["fieldRef"].get("fieldPath", "")
        value = resolve(version, path) if resolve is not None else ""
        w.field(name, f"{value} ({version}:{path})", 3)
    elif origin.get("resourceFieldRef") is not None:
        which = origin["resourceFieldRef"].get("resource", "")
        value = resource_value(container, origin["resourceFieldRef"])
        if value == "0" and which in ("limits.cpu", "limits.memory"):
            value = "node allocatable"
        w.field(name, f"{value} ({which})", 3)
    elif origin.get("secretKeyRef") is not None:
        key = origin["secretKeyRef"]
        message = f"<set to the key '{key.get('key', '')}' in secret '{key.get('name', '')}'>"
        w.row(3, f"{name}:", message, f"Optional: {optional(key)}")
    elif origin.get("configMapKeyRef") is not None:
        key = origin["configMapKeyRef"]
        message = f"<set to the key '{key.get('key', '')}' of config map '{key.get('name', '')}'>"
        w.row(3, f"{name}:", message, f"Optional: {optional(key)}")


def optional(reference: ObjView) -> str:
    return plain(bool(reference.get("optional")))


def resource_value(container: ObjView, field: ObjView) -> str:
    """Return a container's request or limit, in units of the divisor, rounded up."""
    which, _, name = field.get("resource", "").partition(".")
    if which not in ("limits", "requests"):
        return ""
    if name not in ("cpu", "memory", "ephemeral-storage") and not name.startswith("hugepages-"):
        return ""
    amount = parse(((container.get("resources") or {}).get(which) or {}).get(name, "0"))
    divisor = parse(field.get("divisor") or "0")
    if divisor.nano == 0:
        divisor = parse("1")
    measure = Quantity.milli_value if name == "cpu" else Quantity.value
    return str(-(-measure(amount) // measure(divisor)))


def write_containers(
    w: Writer,
    ctx: DescribeContext,
    title: str,
    containers: Sequence[ObjView],
    statuses: Sequence[ObjView] | None = None,
    resolve: Resolve | None = None,
    indent: str = "",
) -> None:
    known = {status.get("name", ""): status for status in statuses or ()}
    w.write(0, f"{indent}{title}:{'' if containers else ' <none>'}\n")
    for container in containers:
        status = known.get(container.get("name", ""))
        w.write(1, f"{' ' if indent else ''}{container.get('name', '')}:\n")
        _write_basics(w, ctx, container, status)
        _write_words(w, "Command", container.get("command"))
        _write_words(w, "Args", container.get("args"))
        if status is not None:
            _write_condition(w, ctx, status)
        write_resources(w, container.get("resources") or {}, 2)
        for name, key in (("Liveness", "livenessProbe"), ("Readiness", "readinessProbe"), ("Startup", "startupProbe")):
            if container.get(key) is not None:
                w.field(name, probe_text(container[key], ctx.minor), 2)
        write_environment(w, container, resolve)
        _write_mounts(w, container)


def _write_basics(w: Writer, ctx: DescribeContext, container: ObjView, status: ObjView | None) -> None:
    if status is not None:
        w.field("Container ID", status.get("containerID", ""), 2)
    w.field("Image", container.get("image", ""), 2)
    if status is not None:
        w.field("Image ID", status.get("imageID", ""), 2)
    _write_ports(w, ctx, "Port", container.get("ports") or (), "containerPort")
    _write_ports(w, ctx, "Host Port", container.get("ports") or (), "hostPort")
    seccomp = (container.get("securityContext") or {}).get("seccompProfile")
    if seccomp is not None:
        w.field("SeccompProfile", seccomp.get("type", ""), 2)
        if seccomp.get("type") == "Localhost":
            w.field("LocalhostProfile", seccomp.get("localhostProfile", ""), 3)


def _write_ports(w: Writer, ctx: DescribeContext, title: str, ports: Sequence[ObjView], which: str) -> None:
    shown = []
    for port in ports:
        text = f"{port.get(which, 0)}/{port.get('protocol', '')}"
        if port.get("name") and ctx.minor >= 34:
            text += f" ({port['name']})"
        shown.append(text)
    w.field(f"{title}s" if len(shown) > 1 else title, ", ".join(shown) or NONE, 2)


def _write_words(w: Writer, title: str, words: Sequence[str] | None) -> None:
    if words:
        w.write(2, f"{title}:\n")
        for word in words:
            for line in word.split("\n"):
                w.write(3, f"{line}\n")


def write_resources(w: Writer, resources: ObjView, level: int) -> None:
    for title, key in (("Limits", "limits"), ("Requests", "requests")):
        amounts = resources.get(key)
        if amounts:
            w.write(level, f"{title}:\n")
            for name in sorted(amounts):
                w.field(name, canonical(amounts[name]), level + 1)


def _write_condition(w: Writer, ctx: DescribeContext, status: ObjView) -> None:
    _write_state(w, ctx, "State", status.get("state") or {})
    last = status.get("lastState") or {}
    if last.get("terminated") is not None:
        _write_state(w, ctx, "Last State", last)
    w.field("Ready", truth(bool(status.get("ready"))), 2)
    w.field("Restart Count", status.get("restartCount", 0), 2)


def _write_state(w: Writer, ctx: DescribeContext, title: str, state: ObjView) -> None:
    if state.get("running") is not None:
        w.field(title, "Running", 2)
        w.field("Started", ctx.moment(state["running"].get("startedAt")), 3)
    elif state.get("terminated") is not None and state.get("waiting") is None:
        ended = state["terminated"]
        w.field(title, "Terminated", 2)
        if ended.get("reason"):
            w.field("Reason", ended["reason"], 3)
        if ended.get("message"):
            w.field("Message", ended["message"], 3)
        w.field("Exit Code", ended.get("exitCode", 0), 3)
        if ended.get("signal", 0) > 0:
            w.field("Signal", ended["signal"], 3)
        w.field("Started", ctx.moment(ended.get("startedAt")), 3)
        w.field("Finished", ctx.moment(ended.get("finishedAt")), 3)
    else:
        w.field(title, "Waiting", 2)
        reason = (state.get("waiting") or {}).get("reason")
        if reason:
            w.field("Reason", reason, 3)


def _write_mounts(w: Writer, container: ObjView) -> None:
    mounts = sorted(container.get("volumeMounts") or (), key=lambda each: str(each.get("mountPath", "")))
    none = "" if mounts else "\t<none>"
    w.write(2, f"Mounts:{none}\n")
    for mount in mounts:
        flags = "ro" if mount.get("readOnly") else "rw"
        if mount.get("subPath"):
            flags += f",path={quote(mount['subPath'])}"
        w.write(3, f"{mount.get('mountPath', '')} from {mount.get('name', '')} ({flags})\n")
    devices = sorted(container.get("volumeDevices") or (), key=lambda each: str(each.get("devicePath", "")))
    if devices:
        # Without mounts kubectl prints `<none>` in the title of the devices too.
        w.write(2, f"Devices:{none}\n")
        for device in devices:
            w.write(3, f"{device.get('devicePath', '')} from {device.get('name', '')}\n")
