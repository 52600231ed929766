"""Security contexts of pods and containers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.kinds.core.podspec.internal import as_json, shown
from setpoint.kinds.core.podspec.options import PodOptions
from setpoint.kinds.core.podspec.paths import validate_local_descending_path
from setpoint.kinds.core.podspec.windows import validate_windows_options
from setpoint.meta.field import Errors, duplicate, forbidden, invalid, not_supported, required, too_long
from setpoint.meta.names import group_id, user_id

Item = Mapping[str, Any]
_SECCOMP = _APP_ARMOR = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSCTL = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
_SYSCTL_PART = re.compile("[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_SYSCTL_SEPARATOR = re.compile("[./]")
_IPC_SYSCTLS = frozenset({
    "kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced", "kernel.shm",
    "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg",
})  # fmt: skip
_MAX_PROFILE_LENGTH = 4095


def validate_security_context(context: Item, path: str, errs: Errors, *, host_users: bool, options: PodOptions) -> None:
    """Validate a container's security context."""
    _validate_ids(context, ("runAsUser", "runAsGroup"), path, errs)
    proc_mount = context.get("procMount")
    if proc_mount is not None:
        if proc_mount not in ("Default", "Unmasked"):
            errs.append(not_supported(f"{path}.procMount", proc_mount, ("Default", "Unmasked")))
        if host_users and proc_mount == "Unmasked":
            text = "`hostUsers` must be false to use `Unmasked`"
            errs.append(invalid(f"{path}.procMount", as_json(proc_mount), text))
    if "seccompProfile" in context:
        _validate_seccomp(context["seccompProfile"], f"{path}.seccompProfile", errs)
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            errs.append(invalid(path, shown("SecurityContext", context), text))
        if not options.allow_sys_admin_without_escalation:
            for capability in (context.get("capabilities") or {}).get("add", ()):
                if capability == "CAP_SYS_ADMIN":
                    text = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
                    errs.append(invalid(path, shown("SecurityContext", context), text))
    if "windowsOptions" in context:
        validate_windows_options(context["windowsOptions"], f"{path}.windowsOptions", errs)
    if "appArmorProfile" in context:
        _validate_app_armor(context["appArmorProfile"], f"{path}.appArmorProfile", errs)


def validate_pod_security_context(context: Item, spec: Item, path: str, errs: Errors, *, options: PodOptions) -> None:
    _validate_ids(context, ("fsGroup", "runAsUser", "runAsGroup"), path, errs)
    for i, group in enumerate(context.get("supplementalGroups", ())):
        for text in group_id(group):
            errs.append(invalid(f"{path}.supplementalGroups[{i}]", group, text))
    if context.get("sysctls"):
        _validate_sysctls(context["sysctls"], spec, f"{path}.sysctls", errs, options)
    _validate_choice(context, "fsGroupChangePolicy", ("Always", "OnRootMismatch"), path, errs)
    if "seccompProfile" in context:
        _validate_seccomp(context["seccompProfile"], f"{path}.seccompProfile", errs)
    if "windowsOptions" in context:
        validate_windows_options(context["windowsOptions"], f"{path}.windowsOptions", errs)
    if "appArmorProfile" in context:
        _validate_app_armor(context["appArmorProfile"], f"{path}.appArmorProfile", errs)
    _validate_choice(context, "supplementalGroupsPolicy", ("Merge", "Strict"), path, errs)
    change = context.get("seLinuxChangePolicy")
    if change is not None and change not in ("MountOption", "Recursive"):
        errs.append(not_supported(f"{path}.seLinuxChangePolicy", change, ("MountOption", "Recursive")))


def _validate_ids(context: Item, names: Sequence[str], path: str, errs: Errors) -> None:
    for name in names:
        if name in context:
            for text in user_id(context[name]):
                errs.append(invalid(f"{path}.{name}", context[name], text))


def _validate_choice(context: Item, name: str, choices: Sequence[str], path: str, errs: Errors) -> None:
    chosen = context.get(name)
    if chosen is not None and chosen not in choices:
        errs.append(not_supported(f"{path}.{name}", as_json(chosen), choices))


def _validate_seccomp(profile: Item, path: str, errs: Errors) -> None:
    kind, file = profile.get("type", ""), profile.get("localhostProfile")
    if not kind:
        errs.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in _SECCOMP:
        errs.append(not_supported(f"{path}.type", kind, _SECCOMP))
    if kind == "Localhost":
        if file is None:
            errs.append(required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost"))
        else:
            validate_local_descending_path(file, f"{path}.localhostProfile", errs)
    elif file is not None:
        text = "can only be set when seccomp type is Localhost"
        errs.append(invalid(f"{path}.localhostProfile", shown("SeccompProfile", profile), text))


def _validate_app_armor(profile: Item, path: str, errs: Errors) -> None:
    kind, file = profile.get("type", ""), profile.get("localhostProfile")
    if kind == "Localhost":
        if file is None:
            errs.append(required(f"{path}.localhostProfile", "must be set when AppArmor type is Localhost"))
            return
        if file.strip() != file:
            errs.append(invalid(f"{path}.localhostProfile", file, "must not be padded with whitespace"))
        elif not file:
            errs.append(required(f"{path}.localhostProfile", "must be set when AppArmor type is Localhost"))
        if len(file.encode()) > _MAX_PROFILE_LENGTH:
            errs.append(too_long(f"{path}.localhostProfile", _MAX_PROFILE_LENGTH))
    elif kind in _APP_ARMOR:
        if file is not None:
            text = "can only be set when AppArmor type is Localhost"
            errs.append(invalid(f"{path}.localhostProfile", as_json(file), text))
    elif not kind:
        errs.append(required(f"{path}.type", "type is required when appArmorProfile is set"))
    else:
        errs.append(not_supported(f"{path}.type", kind, _APP_ARMOR))


def _is_sysctl(name: str) -> bool:
    return len(name) <= 253 and all(_SYSCTL_PART.fullmatch(part) for part in _SYSCTL_SEPARATOR.split(name))


def _validate_sysctls(sysctls: Sequence[Item], spec: Item, path: str, errs: Errors, options: PodOptions) -> None:
    seen: set[str] = set()
    for i, sysctl in enumerate(sysctls):
        name = sysctl.get("name", "")
        at = f"{path}[{i}].name"
        if not name:
            errs.append(required(at, ""))
        elif not _is_sysctl(name):
            errs.append(invalid(at, name, f"must have at most 253 characters and match regex {_SYSCTL}"))
        elif name in seen:
            errs.append(duplicate(at, name))
        if not options.allow_host_sysctls:
            text = host_sysctl_error(name, spec)
            if text:
                errs.append(invalid(at, name, text))
        seen.add(name)


def host_sysctl_error(name: str, spec: Item) -> str:
    """Return the error for a sysctl of a namespace that the pod shares with its host."""
    if spec.get("hostNetwork") or spec.get("hostIPC"):
        # The kernel accepts both separators; the first one in the name decides which is meant.
        first = _SYSCTL_SEPARATOR.search(name)
        if first is not None and first[0] == "/":
            name = name.translate({ord("/"): ".", ord("."): "/"})
        name = name.partition("*")[0]
        if spec.get("hostNetwork") and name.startswith("net."):
            return "may not be specified when 'hostNetwork' is true"
        if spec.get("hostIPC") and (name in _IPC_SYSCTLS or name.startswith("fs.mqueue.")):
            return "may not be specified when 'hostIPC' is true"
    return ""


def validate_share_process_namespace(spec: Item, path: str, errs: Errors) -> None:
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        errs.append(invalid(f"{path}.shareProcessNamespace", True, text))


def validate_host_users(spec: Item, path: str, errs: Errors, *, options: PodOptions) -> None:
    """Validate that a pod with its own user namespace uses no other host namespaces."""
    text = "when `hostUsers` is false"
    if spec.get("hostNetwork") and not options.allow_user_namespace_host_network:
        errs.append(forbidden(f"{path}.hostNetwork", text))
    if spec.get("hostPID"):
        errs.append(forbidden(f"{path}.HostPID", text))
    if spec.get("hostIPC"):
        errs.append(forbidden(f"{path}.HostIPC", text))
    if not options.allow_user_namespace_devices:
        for key in ("initContainers", "containers", "ephemeralContainers"):
            for i, container in enumerate(spec.get(key) or ()):
                if container.get("volumeDevices"):
                    errs.append(forbidden(f"{path}.{key}[{i}].volumeDevices", text))
