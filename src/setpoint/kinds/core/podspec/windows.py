"""Windows: the options of a security context, host processes, and what pods of one OS may not set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from setpoint.kinds.core.podspec.internal import as_json
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required
from setpoint.meta.names import dns1123_subdomain

Item = Mapping[str, Any]
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_NETBIOS = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*")
_BAD_IN_USER = re.compile(r'["/\\:;|=,+*?<>@\[\]]')
_DOTS = re.compile(r"[. ]+")
_CREDENTIAL_KIB = 64

_POD_LINUX_ONLY = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser",
    "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy",
)  # fmt: skip
_CONTAINER_LINUX_ONLY = (
    "appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged",
    "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup",
)  # fmt: skip


def containers_with_path(spec: Item, path: str) -> Iterator[tuple[Item, str]]:
    for key in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(key) or ()):
            yield container, f"{path}.{key}[{i}]"


def validate_windows_options(options: Item, path: str, errs: Errors) -> None:
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


def _host_process(context: Item | None) -> bool | None:
    return ((context or {}).get("windowsOptions") or {}).get("hostProcess")


def _mentions_windows(spec: Item) -> bool:
    if "windowsOptions" in spec.get("securityContext", ()):
        return True
    for key in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(key) or ():
            if "windowsOptions" in container.get("securityContext", ()):
                return True
    return False


def validate_host_process(spec: Item, path: str, errs: Errors) -> None:
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


def validate_os(spec: Item, path: str, errs: Errors) -> None:
    name = spec["os"].get("name", "")
    if not name:
        errs.append(required(f"{path}.os.name", ""))
    elif name not in ("linux", "windows"):
        errs.append(not_supported(f"{path}.os", name, ("linux", "windows")))
    elif name == "linux":
        _validate_linux(spec, path, errs)
    else:
        _validate_windows(spec, path, errs)


def _validate_linux(spec: Item, path: str, errs: Errors) -> None:
    text = "windows options cannot be set for a linux pod"
    if "windowsOptions" in (spec.get("securityContext") or {}):
        errs.append(forbidden(f"{path}.securityContext.windowsOptions", text))
    for container, at in containers_with_path(spec, path):
        if "windowsOptions" in (container.get("securityContext") or {}):
            errs.append(forbidden(f"{at}.securityContext.windowsOptions", text))


def _validate_windows(spec: Item, path: str, errs: Errors) -> None:
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
