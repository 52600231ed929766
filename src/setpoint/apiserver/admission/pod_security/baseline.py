"""The baseline standard: no known way to more privileges."""

from __future__ import annotations

from collections.abc import Callable

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
from setpoint.meta.goformat import quote

_CAPABILITIES = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})  # fmt: skip
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
PROFILES = ("RuntimeDefault", "Localhost")

SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})
SELINUX_TYPES_1_31 = SELINUX_TYPES | {"container_engine_t"}

SYSCTLS = frozenset({
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
})  # fmt: skip
SYSCTLS_1_27 = SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
SYSCTLS_1_29 = SYSCTLS_1_27 | {
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}  # fmt: skip
SYSCTLS_1_32 = SYSCTLS_1_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
SYSCTLS_1_37 = SYSCTLS_1_32 | {"net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"}

Check = Callable[[Item, Item], Finding | None]
"""From a Pod's metadata and spec to what is wrong."""


def app_armor_profile(meta: Item, spec: Item) -> Finding | None:
    pod, bad, values = _profiles(spec, "appArmorProfile")
    annotations = sorted(
        f"{key}={quote(value)}"
        for key, value in (meta.get("annotations") or {}).items()
        if key.startswith(_APP_ARMOR) and value not in ("", "runtime/default") and not value.startswith("localhost/")
    )
    if not (pod or bad or annotations):
        return None
    who = " and ".join(filter(None, (setters(pod, bad), plural("annotation", len(annotations)) if annotations else "")))
    shown = sorted(values) + annotations
    return Finding(
        plural("forbidden AppArmor profile", len(shown)), f"{who} must not set AppArmor profile type to {quoted(shown)}"
    )


def capabilities(meta: Item, spec: Item) -> Finding | None:
    bad, added = [], set()
    for container in containers(spec):
        extra = set((context(container).get("capabilities") or {}).get("add") or ()) - _CAPABILITIES
        if extra:
            bad.append(container.get("name", ""))
            added |= extra
    if not bad:
        return None
    return Finding(
        "non-default capabilities",
        f"{named(bad)} must not include {quoted(sorted(added))} in securityContext.capabilities.add",
    )


def host_namespaces(meta: Item, spec: Item) -> Finding | None:
    used = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    return Finding("host namespaces", ", ".join(used)) if used else None


def host_path_volumes(meta: Item, spec: Item) -> Finding | None:
    bad = [volume.get("name", "") for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]
    return Finding("hostPath volumes", f"{plural('volume', len(bad))} {quoted(bad)}") if bad else None


def host_ports(meta: Item, spec: Item) -> Finding | None:
    bad, ports = [], set()
    for container in containers(spec):
        used = {str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")}
        if used:
            bad.append(container.get("name", ""))
            ports |= used
    if not bad:
        return None
    use = "uses" if len(bad) == 1 else "use"
    return Finding("hostPort", f"{named(bad)} {use} {plural('hostPort', len(ports))} {', '.join(sorted(ports))}")


def host_probes(meta: Item, spec: Item) -> Finding | None:
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
    what = plural("probe or lifecycle host", len(hosts))
    return Finding("probe or lifecycle host", f"{named(sorted(bad))} {use} {what} {quoted(sorted(hosts))}")


def privileged(meta: Item, spec: Item) -> Finding | None:
    bad = [container.get("name", "") for container in containers(spec) if context(container).get("privileged")]
    return Finding("privileged", f"{named(bad)} must not set securityContext.privileged=true") if bad else None


def proc_mount(meta: Item, spec: Item) -> Finding | None:
    bad, kinds = [], set()
    for container in containers(spec):
        kind = context(container).get("procMount")
        if kind is not None and kind != "Default":
            bad.append(container.get("name", ""))
            kinds.add(kind)
    if not bad:
        return None
    return Finding("procMount", f"{named(bad)} must not set securityContext.procMount to {quoted(sorted(kinds))}")


def outside_user_namespaces(check: Check) -> Check:
    """The check, for all but Pods whose users are not the host's."""
    return lambda meta, spec: None if spec.get("hostUsers") is False else check(meta, spec)


def selinux_options(types: frozenset[str]) -> Check:
    def check(meta: Item, spec: Item) -> Finding | None:
        found: list[Item] = []

        def is_bad(holder: Item) -> bool:
            options = context(holder).get("seLinuxOptions")
            if options is None:
                return False
            found.append(options)
            return options.get("type", "") not in types or bool(options.get("user") or options.get("role"))

        pod = is_bad(spec)
        bad = [container.get("name", "") for container in containers(spec) if is_bad(container)]
        if not pod and not bad:
            return None
        wrong = sorted({options.get("type", "") for options in found} - types)
        parts = [f"{plural('type', len(wrong))} {quoted(wrong)}"] if wrong else []
        parts += [f"{key} may not be set" for key in ("user", "role") if any(options.get(key) for options in found)]
        return Finding(
            "seLinuxOptions", f"{setters(pod, bad)} set forbidden securityContext.seLinuxOptions: {'; '.join(parts)}"
        )

    return check


def seccomp_annotations(meta: Item, spec: Item) -> Finding | None:
    annotations = meta.get("annotations") or {}
    keys = [_SECCOMP_POD, *(_SECCOMP_CONTAINER + container.get("name", "") for container in containers(spec))]
    bad = sorted({
        f"{key}={quote(annotations[key])}"
        for key in keys
        if key in annotations
        and annotations[key] not in ("runtime/default", "docker/default")
        and not annotations[key].startswith("localhost/")
    })  # fmt: skip
    return Finding("seccompProfile", f"forbidden {plural('annotation', len(bad))} {', '.join(bad)}") if bad else None


def seccomp_profile(meta: Item, spec: Item) -> Finding | None:
    pod, bad, values = _profiles(spec, "seccompProfile")
    if not pod and not bad:
        return None
    text = f"{setters(pod, bad)} must not set securityContext.seccompProfile.type to {quoted(sorted(values))}"
    return Finding("seccompProfile", text)


def _profiles(spec: Item, key: str) -> tuple[bool, list[str], set[str]]:
    """Whether the Pod, and which containers, name a profile that is not among the harmless ones, and which."""
    values: set[str] = set()

    def is_bad(holder: Item) -> bool:
        profile = context(holder).get(key)
        if profile is None or profile.get("type") in PROFILES:
            return False
        values.add(profile.get("type", ""))
        return True

    pod = is_bad(spec)
    return pod, [container.get("name", "") for container in containers(spec) if is_bad(container)], values


def sysctls(allowed: frozenset[str]) -> Check:
    def check(meta: Item, spec: Item) -> Finding | None:
        bad = [entry["name"] for entry in context(spec).get("sysctls") or () if entry.get("name") not in allowed]
        return Finding("forbidden sysctls", ", ".join(bad)) if bad else None

    return check


def windows_host_process(meta: Item, spec: Item) -> Finding | None:
    def is_bad(holder: Item) -> bool:
        return bool((context(holder).get("windowsOptions") or {}).get("hostProcess"))

    pod = is_bad(spec)
    bad = [container.get("name", "") for container in containers(spec) if is_bad(container)]
    if not pod and not bad:
        return None
    return Finding("hostProcess", f"{setters(pod, bad)} must not set securityContext.windowsOptions.hostProcess=true")
