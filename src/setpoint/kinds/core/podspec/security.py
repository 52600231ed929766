"""Security contexts of pods and containers, and the rules of pods for Windows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from setpoint.kinds.core.podspec.options import PodOptions
from setpoint.kinds.core.podspec.paths import validate_local_descending_path
from setpoint.kinds.internal_form import as_json, shown
from setpoint.meta.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from setpoint.meta.names import dns1123_subdomain, group_id, user_id
from setpoint.meta.objects import ObjView

_CONTROL = re.compile("[\x00-\x1f\x7f]")
_NETBIOS = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*")
_BAD_IN_USER = re.compile(r'["/\\:;|=,+*?<>@\[\]]')
_DOTS = re.compile(r"[. ]+")
_CREDENTIAL_KIB = 64

_POD_LINUX_ONLY = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
)
_CONTAINER_LINUX_ONLY = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)


def containers_with_path(spec: ObjView, path: str) -> Iterator[tuple[ObjView, str]]:
    for key in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(key) or ()):
            yield container, f"{path}.{key}[{i}]"


def _validate_windows_options(options: ObjView, path: str, errs: Errors) -> None:
    name = options.get("gmsaCredentialSpecName")
    if name is not None:
        for text in dns1123_subdomain(name):
            errs.append(invalid(f"{path}.gmsaCredentialSpecName", as_json(name), text))
    credential = options.get("gmsaCredentialSpec")
    if credential is not None:
        if not credential:
            text = "gmsaCredentialSpec cannot be an empty string"
            errs.append(invalid(f"{path}.gmsaCredentialSpec", as_json(credential), text))
        elif len(credential.encode()) > _CREDENTIAL_KIB * 1024:
            text = f"gmsaCredentialSpec size must be under {_CREDENTIAL_KIB} KiB"
            errs.append(invalid(f"{path}.gmsaCredentialSpec", as_json(credential), text))
    user = options.get("runAsUserName")
    if user is not None:
        for text in _user_name_errors(user):
            errs.append(invalid(f"{path}.runAsUserName", as_json(user), text))


def _user_name_errors(text: str) -> list[str]:
    if not text:
        return ["runAsUserName cannot be an empty string"]
    if _CONTROL.search(text):
        return ["runAsUserName cannot contain control characters"]
    parts = text.split("\\")
    if len(parts) > 2:
        return ["runAsUserName cannot contain more than one backslash"]
    errors = []
    user = parts[-1]
    if len(parts) == 2:
        domain = parts[0]
        if len(domain.encode()) >= 256:
            errors.append("runAsUserName's Domain length must be under 256 characters")
        if not (_NETBIOS.fullmatch(domain) or _DNS.fullmatch(domain[:4096])):
            errors.append("runAsUserName's Domain doesn't match the NetBios nor the DNS format")
    if not user:
        errors.append("runAsUserName's User cannot be empty")
    elif len(user.encode()) > 104:
        errors.append("runAsUserName's User length must not be longer than 104 characters")
    if _DOTS.fullmatch(user):
        errors.append("runAsUserName's User cannot contain only periods or spaces")
    if _BAD_IN_USER.search(user):
        errors.append("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]")
    return errors


def _host_process(context: ObjView | None) -> bool | None:
    return ((context or {}).get("windowsOptions") or {}).get("hostProcess")


def _mentions_windows(spec: ObjView) -> bool:
    if "windowsOptions" in spec.get("securityContext", ()):
        return True
    for key in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(key) or ():
            if "windowsOptions" in container.get("securityContext", ()):
                return True
    return False


def validate_host_process(spec: ObjView, path: str, errs: Errors) -> None:
    """Validate HostProcess containers: all of a pod or none, and on the host's network."""
    if not _mentions_windows(spec):
        return
    of_pod = _host_process(spec.get("securityContext"))
    count = host = 0
    for container, at in containers_with_path(spec, path):
        count += 1
        of_container = _host_process(container.get("securityContext"))
        if of_pod is not None and of_container is not None and of_pod != of_container:
            shown = "true" if of_pod else "false"
            text = f"pod hostProcess value must be identical if both are specified, was {shown}"
            errs.append(invalid(f"{at}.securityContext.windowsOptions.hostProcess", of_container, text))
        if of_container or (of_container is None and of_pod):
            host += 1
    if host:
        if host != count:
            text = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
            errs.append(invalid(path, "", text))
        if not spec.get("hostNetwork"):
            text = "hostNetwork must be true if pod contains any hostProcess containers"
            errs.append(invalid(f"{path}.hostNetwork", False, text))


def validate_os(spec: ObjView, path: str, errs: Errors) -> None:
    name = spec["os"].get("name", "")
    if not name:
        errs.append(required(f"{path}.os.name", ""))
    elif name not in ("linux", "windows"):
        errs.append(not_supported(f"{path}.os", name, ("linux", "windows")))
    elif name == "linux":
        _validate_linux(spec, path, errs)
    else:
        _validate_windows(spec, path, errs)


def _validate_linux(spec: ObjView, path: str, errs: Errors) -> None:
    text = "windows options cannot be set for a linux pod"
    if "windowsOptions" in (spec.get("securityContext") or {}):
        errs.append(forbidden(f"{path}.securityContext.windowsOptions", text))
    for container, at in containers_with_path(spec, path):
        if "windowsOptions" in (container.get("securityContext") or {}):
            errs.append(forbidden(f"{at}.securityContext.windowsOptions", text))


def _validate_windows(spec: ObjView, path: str, errs: Errors) -> None:
    text = "cannot be set for a windows pod"
    context = spec.get("securityContext") or {}
    errs.extend(forbidden(f"{path}.securityContext.{name}", text) for name in _POD_LINUX_ONLY if name in context)
    if "hostUsers" in spec:
        errs.append(forbidden(f"{path}.hostUsers", text))
    for name in ("hostPID", "hostIPC"):
        if spec.get(name):
            errs.append(forbidden(f"{path}.{name}", text))
    if "shareProcessNamespace" in spec:
        errs.append(forbidden(f"{path}.shareProcessNamespace", text))
    for container, at in containers_with_path(spec, path):
        context = container.get("securityContext") or {}
        given = [name for name in _CONTAINER_LINUX_ONLY if name in context]
        errs.extend(forbidden(f"{at}.securityContext.{name}", text) for name in given)


_SECCOMP = _APP_ARMOR = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSCTL = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
_SYSCTL_PART = re.compile("[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_SYSCTL_SEPARATOR = re.compile("[./]")
_IPC_SYSCTLS = frozenset(
    {
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.msg",
    }
)
_MAX_PROFILE_LENGTH = 4095


def validate_security_context(
    context: ObjView, path: str, errs: Errors, *, host_users: bool, options: PodOptions
) -> None:
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
        _validate_windows_options(context["windowsOptions"], f"{path}.windowsOptions", errs)
    if "appArmorProfile" in context:
        _validate_app_armor(context["appArmorProfile"], f"{path}.appArmorProfile", errs)


def validate_pod_security_context(
    context: ObjView, spec: ObjView, path: str, errs: Errors, *, options: PodOptions
) -> None:
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
        _validate_windows_options(context["windowsOptions"], f"{path}.windowsOptions", errs)
    if "appArmorProfile" in context:
        _validate_app_armor(context["appArmorProfile"], f"{path}.appArmorProfile", errs)
    _validate_choice(context, "supplementalGroupsPolicy", ("Merge", "Strict"), path, errs)
    change = context.get("seLinuxChangePolicy")
    if change is not None and change not in ("MountOption", "Recursive"):
        errs.append(not_supported(f"{path}.seLinuxChangePolicy", change, ("MountOption", "Recursive")))


def _validate_ids(context: ObjView, names: Sequence[str], path: str, errs: Errors) -> None:
    for name in names:
        if name in context:
            for text in user_id(context[name]):
                errs.append(invalid(f"{path}.{name}", context[name], text))


def _validate_choice(context: ObjView, name: str, choices: Sequence[str], path: str, errs: Errors) -> None:
    chosen = context.get(name)
    if chosen is not None and chosen not in choices:
        errs.append(not_supported(f"{path}.{name}", as_json(chosen), choices))


def _validate_seccomp(profile: ObjView, path: str, errs: Errors) -> None:
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


def _validate_app_armor(profile: ObjView, path: str, errs: Errors) -> None:
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


def _validate_sysctls(sysctls: Sequence[ObjView], spec: ObjView, path: str, errs: Errors, options: PodOptions) -> None:
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


def host_sysctl_error(name: str, spec: ObjView) -> str:
    """Return the error for a sysctl of a namespace that the pod shares with its host."""
    if spec.get("hostNetwork") or spec.get("hostIPC"):
        # The kernel accepts both separators; the first one in the name is the separator.
        first = _SYSCTL_SEPARATOR.search(name)
        if first is not None and first[0] == "/":
            name = name.translate({ord("/"): ".", ord("."): "/"})
        name = name.partition("*")[0]
        if spec.get("hostNetwork") and name.startswith("net."):
            return "may not be specified when 'hostNetwork' is true"
        if spec.get("hostIPC") and (name in _IPC_SYSCTLS or name.startswith("fs.mqueue.")):
            return "may not be specified when 'hostIPC' is true"
    return ""


def validate_share_process_namespace(spec: ObjView, path: str, errs: Errors) -> None:
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        errs.append(invalid(f"{path}.shareProcessNamespace", True, text))


def validate_host_users(spec: ObjView, path: str, errs: Errors, *, options: PodOptions) -> None:
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
