"""The checks of the Pod security standards baseline and restricted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from setpoint.kinds.core.references import containers
from setpoint.meta.goformat import quote
from setpoint.meta.objects import ObjView

_BASELINE_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_PROFILES = ("RuntimeDefault", "Localhost")
SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})
SELINUX_TYPES_1_31 = SELINUX_TYPES | {"container_engine_t"}
SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
    }
)
SYSCTLS_1_27 = SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
SYSCTLS_1_29 = SYSCTLS_1_27 | {
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
SYSCTLS_1_32 = SYSCTLS_1_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
SYSCTLS_1_37 = SYSCTLS_1_32 | {"net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"}
_ALLOWED_VOLUMES = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
_OTHER_VOLUMES = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
)


class Finding(NamedTuple):
    """A violation of a standard."""

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


def _security_context(holder: ObjView) -> ObjView:
    """Return the security context of a Pod's spec or of a container."""
    return holder.get("securityContext") or {}


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"


def _named(names: list[str]) -> str:
    """Return `container "a"` or `containers "a", "b"`."""
    return f"{_plural('container', len(names))} {_quoted(names)}"


def _setters(pod: bool, names: list[str]) -> str:
    """Describe who sets a field: the Pod, containers, or both."""
    return " and ".join(part for part in ("pod" if pod else "", _named(names) if names else "") if part)


Check = Callable[[ObjView, ObjView], Finding | None]
"""Maps a Pod's metadata and spec to a finding, or None if there is none."""


def app_armor_profile(meta: ObjView, spec: ObjView) -> Finding | None:
    pod, bad, values = _profiles(spec, "appArmorProfile")
    annotations = sorted(
        f"{key}={quote(value)}"
        for key, value in (meta.get("annotations") or {}).items()
        if key.startswith(_APP_ARMOR) and value not in ("", "runtime/default") and not value.startswith("localhost/")
    )
    if not (pod or bad or annotations):
        return None
    who = " and ".join(
        filter(None, (_setters(pod, bad), _plural("annotation", len(annotations)) if annotations else ""))
    )
    shown = sorted(values) + annotations
    return Finding(
        _plural("forbidden AppArmor profile", len(shown)),
        f"{who} must not set AppArmor profile type to {_quoted(shown)}",
    )


def baseline_capabilities(meta: ObjView, spec: ObjView) -> Finding | None:
    bad, added = [], set()
    for container in containers(spec):
        extra = set((_security_context(container).get("capabilities") or {}).get("add") or ()) - _BASELINE_CAPABILITIES
        if extra:
            bad.append(container.get("name", ""))
            added |= extra
    if not bad:
        return None
    return Finding(
        "non-default capabilities",
        f"{_named(bad)} must not include {_quoted(sorted(added))} in securityContext.capabilities.add",
    )


def host_namespaces(meta: ObjView, spec: ObjView) -> Finding | None:
    used = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    return Finding("host namespaces", ", ".join(used)) if used else None


def host_path_volumes(meta: ObjView, spec: ObjView) -> Finding | None:
    bad = [volume.get("name", "") for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]
    return Finding("hostPath volumes", f"{_plural('volume', len(bad))} {_quoted(bad)}") if bad else None


def host_ports(meta: ObjView, spec: ObjView) -> Finding | None:
    bad, ports = [], set()
    for container in containers(spec):
        used = {str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")}
        if used:
            bad.append(container.get("name", ""))
            ports |= used
    if not bad:
        return None
    use = "uses" if len(bad) == 1 else "use"
    return Finding("hostPort", f"{_named(bad)} {use} {_plural('hostPort', len(ports))} {', '.join(sorted(ports))}")


def host_probes(meta: ObjView, spec: ObjView) -> Finding | None:
    bad, hosts = set(), set()
    for container in containers(spec):
        lifecycle = container.get("lifecycle") or {}
        handlers = [container.get(name) for name in ("livenessProbe", "readinessProbe", "startupProbe")]
        handlers += [lifecycle.get("postStart"), lifecycle.get("preStop")]
        for handler in handlers:
            for way in ("httpGet", "tcpSocket"):
                host = ((handler or {}).get(way) or {}).get("host")
                if host:
                    bad.add(container.get("name", ""))
                    hosts.add(host)
    if not bad:
        return None
    use = "uses" if len(bad) == 1 else "use"
    what = _plural("probe or lifecycle host", len(hosts))
    return Finding("probe or lifecycle host", f"{_named(sorted(bad))} {use} {what} {_quoted(sorted(hosts))}")


def privileged(meta: ObjView, spec: ObjView) -> Finding | None:
    bad = [
        container.get("name", "") for container in containers(spec) if _security_context(container).get("privileged")
    ]
    return Finding("privileged", f"{_named(bad)} must not set securityContext.privileged=true") if bad else None


def proc_mount(meta: ObjView, spec: ObjView) -> Finding | None:
    bad, kinds = [], set()
    for container in containers(spec):
        kind = _security_context(container).get("procMount")
        if kind is not None and kind != "Default":
            bad.append(container.get("name", ""))
            kinds.add(kind)
    if not bad:
        return None
    return Finding("procMount", f"{_named(bad)} must not set securityContext.procMount to {_quoted(sorted(kinds))}")


def outside_user_namespaces(check: Check) -> Check:
    """Return the check for all Pods except those with their own user namespace."""
    return lambda meta, spec: None if spec.get("hostUsers") is False else check(meta, spec)


def selinux_options(types: frozenset[str]) -> Check:
    def check(meta: ObjView, spec: ObjView) -> Finding | None:
        found: list[ObjView] = []

        def is_bad(holder: ObjView) -> bool:
            options = _security_context(holder).get("seLinuxOptions")
            if options is None:
                return False
            found.append(options)
            return options.get("type", "") not in types or bool(options.get("user") or options.get("role"))

        pod = is_bad(spec)
        bad = [container.get("name", "") for container in containers(spec) if is_bad(container)]
        if not pod and not bad:
            return None
        wrong = sorted({options.get("type", "") for options in found} - types)
        parts = [f"{_plural('type', len(wrong))} {_quoted(wrong)}"] if wrong else []
        parts += [f"{key} may not be set" for key in ("user", "role") if any(options.get(key) for options in found)]
        return Finding(
            "seLinuxOptions", f"{_setters(pod, bad)} set forbidden securityContext.seLinuxOptions: {'; '.join(parts)}"
        )

    return check


def seccomp_annotations(meta: ObjView, spec: ObjView) -> Finding | None:
    annotations = meta.get("annotations") or {}
    keys = [_SECCOMP_POD, *(_SECCOMP_CONTAINER + container.get("name", "") for container in containers(spec))]
    bad = sorted(
        {
            f"{key}={quote(annotations[key])}"
            for key in keys
            if key in annotations
            and annotations[key] not in ("runtime/default", "docker/default")
            and not annotations[key].startswith("localhost/")
        }
    )
    return Finding("seccompProfile", f"forbidden {_plural('annotation', len(bad))} {', '.join(bad)}") if bad else None


def baseline_seccomp_profile(meta: ObjView, spec: ObjView) -> Finding | None:
    pod, bad, values = _profiles(spec, "seccompProfile")
    if not pod and not bad:
        return None
    text = f"{_setters(pod, bad)} must not set securityContext.seccompProfile.type to {_quoted(sorted(values))}"
    return Finding("seccompProfile", text)


def _profiles(spec: ObjView, key: str) -> tuple[bool, list[str], set[str]]:
    """Return whether the Pod names a profile that is not allowed, which containers do, and which profiles these are."""
    values: set[str] = set()

    def is_bad(holder: ObjView) -> bool:
        profile = _security_context(holder).get(key)
        if profile is None or profile.get("type") in _PROFILES:
            return False
        values.add(profile.get("type", ""))
        return True

    pod = is_bad(spec)
    return pod, [container.get("name", "") for container in containers(spec) if is_bad(container)], values


def sysctls(allowed: frozenset[str]) -> Check:
    def check(meta: ObjView, spec: ObjView) -> Finding | None:
        bad = [
            entry["name"] for entry in _security_context(spec).get("sysctls") or () if entry.get("name") not in allowed
        ]
        return Finding("forbidden sysctls", ", ".join(bad)) if bad else None

    return check


def windows_host_process(meta: ObjView, spec: ObjView) -> Finding | None:
    def is_bad(holder: ObjView) -> bool:
        return bool((_security_context(holder).get("windowsOptions") or {}).get("hostProcess"))

    pod = is_bad(spec)
    bad = [container.get("name", "") for container in containers(spec) if is_bad(container)]
    if not pod and not bad:
        return None
    return Finding("hostProcess", f"{_setters(pod, bad)} must not set securityContext.windowsOptions.hostProcess=true")


def except_windows(check: Check) -> Check:
    """Return the check for all Pods except Windows Pods, which cannot set the field."""
    return lambda meta, spec: None if (spec.get("os") or {}).get("name") == "windows" else check(meta, spec)


def allow_privilege_escalation(meta: ObjView, spec: ObjView) -> Finding | None:
    bad = [
        container.get("name", "")
        for container in containers(spec)
        if _security_context(container).get("allowPrivilegeEscalation") is not False
    ]
    if not bad:
        return None
    text = f"{_named(bad)} must set securityContext.allowPrivilegeEscalation=false"
    return Finding("allowPrivilegeEscalation != false", text)


def restricted_capabilities(meta: ObjView, spec: ObjView) -> Finding | None:
    keeping, adding, added = [], [], set()
    for container in containers(spec):
        given = _security_context(container).get("capabilities") or {}
        if "ALL" not in (given.get("drop") or ()):
            keeping.append(container.get("name", ""))
        extra = set(given.get("add") or ()) - {"NET_BIND_SERVICE"}
        if extra:
            adding.append(container.get("name", ""))
            added |= extra
    parts = []
    if keeping:
        parts.append(f'{_named(keeping)} must set securityContext.capabilities.drop=["ALL"]')
    if adding:
        parts.append(f"{_named(adding)} must not include {_quoted(sorted(added))} in securityContext.capabilities.add")
    return Finding("unrestricted capabilities", "; ".join(parts)) if parts else None


def restricted_volumes(meta: ObjView, spec: ObjView) -> Finding | None:
    bad, kinds = [], set()
    for volume in spec.get("volumes") or ():
        if any(volume.get(kind) is not None for kind in _ALLOWED_VOLUMES):
            continue
        bad.append(volume.get("name", ""))
        kinds.add(next((kind for kind in _OTHER_VOLUMES if volume.get(kind) is not None), "unknown"))
    if not bad:
        return None
    use = "uses" if len(bad) == 1 else "use"
    text = f"{_plural('volume', len(bad))} {_quoted(bad)} {use} {_plural('restricted volume type', len(kinds))}"
    return Finding("restricted volume types", f"{text} {_quoted(sorted(kinds))}")


def run_as_non_root(meta: ObjView, spec: ObjView) -> Finding | None:
    pod = _security_context(spec).get("runAsNonRoot")
    bad, unset = [], []
    for container in containers(spec):
        own = _security_context(container).get("runAsNonRoot")
        if own is False:
            bad.append(container.get("name", ""))
        elif own is None and not pod:
            unset.append(container.get("name", ""))
    if pod is False or bad:
        text = f"{_setters(pod is False, bad)} must not set securityContext.runAsNonRoot=false"
    elif unset:
        text = f"pod or {_named(unset)} must set securityContext.runAsNonRoot=true"
    else:
        return None
    return Finding("runAsNonRoot != true", text)


def run_as_user(meta: ObjView, spec: ObjView) -> Finding | None:
    pod = _security_context(spec).get("runAsUser") == 0
    bad = [
        container.get("name", "")
        for container in containers(spec)
        if _security_context(container).get("runAsUser") == 0
    ]
    if not pod and not bad:
        return None
    return Finding("runAsUser=0", f"{_setters(pod, bad)} must not set runAsUser=0")


def restricted_seccomp_profile(meta: ObjView, spec: ObjView) -> Finding | None:
    found = baseline_seccomp_profile(meta, spec)
    if found is not None:
        return found
    if (_security_context(spec).get("seccompProfile") or {}).get("type") in _PROFILES:
        return None
    unset = [
        container.get("name", "")
        for container in containers(spec)
        if _security_context(container).get("seccompProfile") is None
    ]
    if not unset:
        return None
    text = f'pod or {_named(unset)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Finding("seccompProfile", text)
