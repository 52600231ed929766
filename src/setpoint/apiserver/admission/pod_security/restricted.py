"""The restricted standard: hardened Pods."""

from __future__ import annotations

from setpoint.apiserver.admission.pod_security.baseline import PROFILES, Check, seccomp_profile
from setpoint.apiserver.admission.pod_security.findings import (
    Finding,
    Item,
    context,
    named,
    plural,
    quoted,
    setters,
)
from setpoint.kinds.core.pod_references import containers

_VOLUMES = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
)  # fmt: skip
_OTHER_VOLUMES = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd",
    "flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk",
    "photonPersistentDisk", "portworxVolume", "scaleIO", "storageos",
)  # fmt: skip


def except_windows(check: Check) -> Check:
    """The check, for all but Pods that say they are for Windows, where the field cannot be set."""
    return lambda meta, spec: None if (spec.get("os") or {}).get("name") == "windows" else check(meta, spec)


def allow_privilege_escalation(meta: Item, spec: Item) -> Finding | None:
    bad = [
        container.get("name", "")
        for container in containers(spec)
        if context(container).get("allowPrivilegeEscalation") is not False
    ]
    if not bad:
        return None
    text = f"{named(bad)} must set securityContext.allowPrivilegeEscalation=false"
    return Finding("allowPrivilegeEscalation != false", text)


def capabilities(meta: Item, spec: Item) -> Finding | None:
    keeping, adding, added = [], [], set()
    for container in containers(spec):
        given = context(container).get("capabilities") or {}
        if "ALL" not in (given.get("drop") or ()):
            keeping.append(container.get("name", ""))
        extra = set(given.get("add") or ()) - {"NET_BIND_SERVICE"}
        if extra:
            adding.append(container.get("name", ""))
            added |= extra
    parts = []
    if keeping:
        parts.append(f'{named(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        parts.append(f"{named(adding)} must not include {quoted(sorted(added))} in securityContext.capabilities.add")
    return Finding("unrestricted capabilities", "; ".join(parts)) if parts else None


def volumes(meta: Item, spec: Item) -> Finding | None:
    bad, kinds = [], set()
    for volume in spec.get("volumes") or ():
        if any(volume.get(kind) is not None for kind in _VOLUMES):
            continue
        bad.append(volume.get("name", ""))
        kinds.add(next((kind for kind in _OTHER_VOLUMES if volume.get(kind) is not None), "unknown"))
    if not bad:
        return None
    use = "uses" if len(bad) == 1 else "use"
    text = f"{plural('volume', len(bad))} {quoted(bad)} {use} {plural('restricted volume type', len(kinds))}"
    return Finding("restricted volume types", f"{text} {quoted(sorted(kinds))}")


def run_as_non_root(meta: Item, spec: Item) -> Finding | None:
    pod = context(spec).get("runAsNonRoot")
    bad, unset = [], []
    for container in containers(spec):
        own = context(container).get("runAsNonRoot")
        if own is False:
            bad.append(container.get("name", ""))
        elif own is None and not pod:
            unset.append(container.get("name", ""))
    if pod is False or bad:
        text = f"{setters(pod is False, bad)} must not set securityContext.runAsNonRoot=false"
    elif unset:
        text = f"pod or {named(unset)} must set securityContext.runAsNonRoot=true"
    else:
        return None
    return Finding("runAsNonRoot != true", text)


def run_as_user(meta: Item, spec: Item) -> Finding | None:
    pod = context(spec).get("runAsUser") == 0
    bad = [container.get("name", "") for container in containers(spec) if context(container).get("runAsUser") == 0]
    if not pod and not bad:
        return None
    return Finding("runAsUser=0", f"{setters(pod, bad)} must not set runAsUser=0")


def seccomp(meta: Item, spec: Item) -> Finding | None:
    found = seccomp_profile(meta, spec)
    if found is not None:
        return found
    if (context(spec).get("seccompProfile") or {}).get("type") in PROFILES:
        return None
    unset = [
        container.get("name", "") for container in containers(spec) if context(container).get("seccompProfile") is None
    ]
    if not unset:
        return None
    text = f'pod or {named(unset)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Finding("seccompProfile", text)
