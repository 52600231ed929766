"""Describe the containers of a Pod or template: images, states, resources, environment and mounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.cli.describe.context import DescribeContext
from setpoint.cli.describe.environment import Resolve, write_environment
from setpoint.cli.describe.metadata import truth
from setpoint.cli.describe.probes import probe_text
from setpoint.cli.describe.writer import Writer
from setpoint.kinds.columns import NONE
from setpoint.meta.goformat import quote
from setpoint.meta.quantity import canonical

Item = Mapping[str, Any]


def write_containers(
    w: Writer,
    ctx: DescribeContext,
    title: str,
    containers: Sequence[Item],
    statuses: Sequence[Item] | None = None,
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


def _write_basics(w: Writer, ctx: DescribeContext, container: Item, status: Item | None) -> None:
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


def _write_ports(w: Writer, ctx: DescribeContext, title: str, ports: Sequence[Item], which: str) -> None:
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


def write_resources(w: Writer, resources: Item, level: int) -> None:
    for title, key in (("Limits", "limits"), ("Requests", "requests")):
        amounts = resources.get(key)
        if amounts:
            w.write(level, f"{title}:\n")
            for name in sorted(amounts):
                w.field(name, canonical(amounts[name]), level + 1)


def _write_condition(w: Writer, ctx: DescribeContext, status: Item) -> None:
    _write_state(w, ctx, "State", status.get("state") or {})
    last = status.get("lastState") or {}
    if last.get("terminated") is not None:
        _write_state(w, ctx, "Last State", last)
    w.field("Ready", truth(bool(status.get("ready"))), 2)
    w.field("Restart Count", status.get("restartCount", 0), 2)


def _write_state(w: Writer, ctx: DescribeContext, title: str, state: Item) -> None:
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


def _write_mounts(w: Writer, container: Item) -> None:
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
