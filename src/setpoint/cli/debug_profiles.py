"""The profiles of `kubectl debug`, as changes of the Pod and its debugging container."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from setpoint.cli.failures import Failed
from setpoint.meta.objects import Obj

EPHEMERAL, COPY, NODE = "ephemeral", "copy", "node"
PROFILES = ("general", "baseline", "restricted", "netadmin", "sysadmin", "legacy")


class Keep(NamedTuple):
    """The parts of a Pod that its copy retains."""

    labels: bool = False
    annotations: bool = False
    liveness: bool = False
    readiness: bool = False
    startup: bool = False
    init_containers: bool = True


def apply_profile(profile: str, pod: Obj, container: Obj, style: str, keep: Keep) -> None:
    """Apply a profile to `container`, the debugging container in `pod`; both are changed."""
    if profile not in PROFILES:
        raise Failed(f"unknown profile: {profile}")
    if profile == "legacy":
        if style == NODE:
            _mount_root(pod, container)
            _use_host(pod)
        elif style == COPY:
            pod["metadata"].pop("labels", None)
        return
    _RIGHTS[profile](container, style)
    if style == NODE:
        if profile in ("general", "sysadmin"):
            _mount_root(pod, container)
        if profile in ("general", "netadmin", "sysadmin"):
            _use_host(pod)
    elif style == COPY:
        _strip(pod, keep)
        pod["spec"].setdefault("shareProcessNamespace", True)


def _general(container: Obj, style: str) -> None:
    if style == NODE:
        container.pop("securityContext", None)
    else:
        _add_capabilities(container, "SYS_PTRACE")


def _baseline(container: Obj, style: str) -> None:
    container.pop("securityContext", None)


def _restricted(container: Obj, style: str) -> None:
    container["securityContext"] = {
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "allowPrivilegeEscalation": False,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _netadmin(container: Obj, style: str) -> None:
    _add_capabilities(container, "NET_ADMIN", "NET_RAW")


def _sysadmin(container: Obj, style: str) -> None:
    container["securityContext"] = {**(container.get("securityContext") or {}), "privileged": True}


_RIGHTS: dict[str, Callable[[Obj, str], None]] = {
    "general": _general,
    "baseline": _baseline,
    "restricted": _restricted,
    "netadmin": _netadmin,
    "sysadmin": _sysadmin,
}


def _add_capabilities(container: Obj, *names: str) -> None:
    context = dict(container.get("securityContext") or {})
    capabilities = dict(context.get("capabilities") or {})
    capabilities["add"] = [*(capabilities.get("add") or ()), *names]
    container["securityContext"] = {**context, "capabilities": capabilities}


def _mount_root(pod: Obj, container: Obj) -> None:
    pod["spec"].setdefault("volumes", []).append({"name": "host-root", "hostPath": {"path": "/"}})
    container.setdefault("volumeMounts", []).append({"mountPath": "/host", "name": "host-root"})


def _use_host(pod: Obj) -> None:
    pod["spec"].update(hostNetwork=True, hostPID=True, hostIPC=True)


def _strip(pod: Obj, keep: Keep) -> None:
    if not keep.labels:
        pod["metadata"].pop("labels", None)
    if not keep.annotations:
        pod["metadata"].pop("annotations", None)
    for container in pod["spec"]["containers"]:
        for probe, kept in (
            ("livenessProbe", keep.liveness),
            ("readinessProbe", keep.readiness),
            ("startupProbe", keep.startup),
        ):
            if not kept:
                container.pop(probe, None)
    if not keep.init_containers:
        pod["spec"].pop("initContainers", None)
