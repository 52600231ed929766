"""Security contexts of sandboxes and containers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from setpoint.kinds.core.podspec.annotations import APP_ARMOR
from setpoint.kinds.core.podspec.options import all_containers
from setpoint.meta.goformat import quote
from setpoint.meta.names import user_id
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.cri.enums import NamespaceMode, ProfileType, SupplementalGroupsPolicy
from setpoint.node.environment import ContainerConfigError
from setpoint.node.host.pod_settings import IdRange, PodConfigSettings, UnsupportedByRuntime, describe_pod

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

MASKED_PATHS = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
"""The paths that containers cannot read, unless their procMount is Unmasked."""
READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

APPARMOR_REASON = "AppArmor"
SUPPLEMENTAL_GROUPS_REASON = "SupplementalGroupsPolicyNotSupported"

_SECCOMP_TYPES = {"RuntimeDefault": ProfileType.RUNTIME_DEFAULT, "Unconfined": ProfileType.UNCONFINED}
_APPARMOR_TYPES = {
    "RuntimeDefault": (ProfileType.RUNTIME_DEFAULT, "runtime/default"),
    "Unconfined": (ProfileType.UNCONFINED, "unconfined"),
}
_APPARMOR_LOCALHOST = "localhost/"
_GROUPS_POLICIES = {"Merge": SupplementalGroupsPolicy.MERGE, "Strict": SupplementalGroupsPolicy.STRICT}
_POD_LEVEL = ("seLinuxOptions", "runAsUser", "runAsGroup", "runAsNonRoot")
"""The fields of a Pod's security context that are defaults of its containers."""


class ImageUser(NamedTuple):
    """The user of an image, by id or by name."""

    uid: int | None = 0
    """The user id; None if the image has only a name."""
    name: str = ""

    @classmethod
    def of(cls, uid: int | None, name: str) -> ImageUser:
        """Return the user of an image status. An image without a user runs as root."""
        if uid is not None:
            return cls(uid)
        return cls(None, name) if name else cls()


class Rejection(NamedTuple):
    """The reason and the message with which a node rejects a Pod."""

    reason: str
    message: str


def effective_context(pod: Pod, spec: ObjView) -> Obj:
    """Return a container's security context with the defaults of its Pod."""
    level: ObjView = pod["spec"].get("securityContext") or {}
    found = {name: level[name] for name in _POD_LEVEL if level.get(name) is not None}
    own: ObjView = spec.get("securityContext") or {}
    return found | {name: value for name, value in own.items() if value is not None}


def sandbox_security_context(
    pod: Pod, settings: PodConfigSettings, *, extra_groups: Sequence[int] = (), id_range: IdRange | None = None
) -> Obj:
    """Return CRI's LinuxSandboxSecurityContext. The parameters are those of `container_security_context`."""
    spec = pod["spec"]
    level: ObjView = spec.get("securityContext") or {}
    found: Obj = {
        "namespace_options": namespace_options(pod, settings, id_range),
        # The sandbox allows more than its containers only if one of them is privileged.
        "privileged": any((each.get("securityContext") or {}).get("privileged") for each in all_containers(spec)),
        "seccomp": {"profile_type": ProfileType.RUNTIME_DEFAULT},
        "supplemental_groups": [*_fs_group(level), *extra_groups, *(level.get("supplementalGroups") or ())],
    }
    _add_identity(found, level)
    _add_groups_policy(found, level, settings)
    return found


def container_security_context(
    pod: Pod,
    spec: ObjView,
    settings: PodConfigSettings,
    image_user: ImageUser,
    *,
    target_id: str = "",
    extra_groups: Sequence[int] = (),
    id_range: IdRange | None = None,
) -> Obj:
    """Return CRI's LinuxContainerSecurityContext. `target_id` is the container whose processes an ephemeral container
    sees, `extra_groups` are those of the Pod's volumes, `id_range` that of a Pod with a user namespace. Raise
    ContainerConfigError if the context demands what cannot be enforced."""
    context = effective_context(pod, spec)
    check_non_root(pod, spec, image_user)
    level: ObjView = pod["spec"].get("securityContext") or {}
    namespaces = namespace_options(pod, settings, id_range)
    if target_id and namespaces["pid"] == NamespaceMode.CONTAINER:
        namespaces |= {"pid": NamespaceMode.TARGET, "target_id": target_id}
    unmasked = context.get("procMount") == "Unmasked"
    found: Obj = {
        "namespace_options": namespaces,
        "privileged": bool(context.get("privileged")),
        "readonly_rootfs": bool(context.get("readOnlyRootFilesystem")),
        "no_new_privs": context.get("allowPrivilegeEscalation") is False,
        "supplemental_groups": [*_fs_group(level), *(level.get("supplementalGroups") or ()), *extra_groups],
        "masked_paths": [] if unmasked else [*MASKED_PATHS, *settings.thermal_throttle_paths],
        "readonly_paths": [] if unmasked else list(READONLY_PATHS),
        "seccomp": _seccomp(pod, spec, settings),
    }
    if context.get("runAsUser") is None:
        found |= {"run_as_user": {"value": image_user.uid}} if image_user.uid is not None else {}
        found |= {"run_as_username": image_user.name} if image_user.name else {}
    _add_identity(found, context)
    _add_groups_policy(found, level, settings)
    capabilities = context.get("capabilities")
    if capabilities is not None:
        found["capabilities"] = {
            "add_capabilities": list(capabilities.get("add") or ()),
            "drop_capabilities": list(capabilities.get("drop") or ()),
        }
    found |= _apparmor(pod, spec)
    return found


def namespace_options(pod: Pod, settings: PodConfigSettings, id_range: IdRange | None = None) -> Obj:
    """Return CRI's NamespaceOption. Raise UnsupportedByRuntime if the Pod cannot have the user namespace it needs."""
    spec = pod["spec"]
    if spec.get("hostPID"):
        pid = NamespaceMode.NODE
    else:
        pid = NamespaceMode.POD if spec.get("shareProcessNamespace") else NamespaceMode.CONTAINER
    return {
        "network": NamespaceMode.NODE if spec.get("hostNetwork") else NamespaceMode.POD,
        "pid": pid,
        "ipc": NamespaceMode.NODE if spec.get("hostIPC") else NamespaceMode.POD,
        "userns_options": _user_namespace(pod, settings, id_range),
    }


def check_non_root(pod: Pod, spec: ObjView, image_user: ImageUser) -> None:
    """Raise ContainerConfigError if the container must not run as root and would, or may."""
    context = effective_context(pod, spec)
    if not context.get("runAsNonRoot"):
        return
    where = f"(pod: {quote(describe_pod(pod))}, container: {spec['name']})"
    user = context.get("runAsUser")
    if user is not None:
        if user == 0:
            raise ContainerConfigError(f"container's runAsUser breaks non-root policy {where}")
        return
    uid = image_user.uid
    if uid is None:
        raise ContainerConfigError(
            f"container has runAsNonRoot and image has non-numeric user ({image_user.name}), "
            f"cannot verify user is non-root {where}"
        )
    if uid == 0:
        raise ContainerConfigError(f"container has runAsNonRoot and image will run as root {where}")
    errors = user_id(uid)
    if errors:
        raise ContainerConfigError(
            f"container has runAsNonRoot and image has an invalid user id ({uid}). "
            f"(Must be 1-({2**31 - 1})): {'; '.join(errors)} {where}"
        )


def security_rejection(pod: Pod, settings: PodConfigSettings) -> Rejection | None:
    """Return why the node cannot accept a Pod because of its security context, or None."""
    spec = pod["spec"]
    if (spec.get("securityContext") or {}).get("supplementalGroupsPolicy") == "Strict":
        if not settings.features().supplemental_groups_policy:
            message = "SupplementalGroupsPolicy=Strict is not supported in this node"
            return Rejection(SUPPLEMENTAL_GROUPS_REASON, message)
    if not settings.apparmor and not _has_started(pod) and _needs_apparmor(pod):
        return Rejection(APPARMOR_REASON, "Cannot enforce AppArmor: AppArmor is not enabled on the host")
    return None


def _has_started(pod: Pod) -> bool:
    """Return whether the Pod ran before. Such a Pod is not rejected again after a restart of the agent."""
    return (pod.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")


def _needs_apparmor(pod: Pod) -> bool:
    profiles = (_apparmor_profile(pod, each) for each in all_containers(pod["spec"]))
    return any(profile is not None and profile.get("type") != "Unconfined" for profile in profiles)


def _add_identity(found: Obj, context: ObjView) -> None:
    for field, name in (("run_as_user", "runAsUser"), ("run_as_group", "runAsGroup")):
        if context.get(name) is not None:
            found[field] = {"value": context[name]}
    options = context.get("seLinuxOptions")
    if options is not None:
        found["selinux_options"] = {field: options.get(field) or "" for field in ("user", "role", "type", "level")}


def _fs_group(level: ObjView) -> list[int]:
    return [level["fsGroup"]] if level.get("fsGroup") is not None else []


def _add_groups_policy(found: Obj, level: ObjView, settings: PodConfigSettings) -> None:
    name = level.get("supplementalGroupsPolicy")
    if name is None:
        return
    policy = _GROUPS_POLICIES.get(name)
    if policy is None:
        raise ContainerConfigError(f"unsupported supplementalGroupsPolicy: {name}")
    if policy is SupplementalGroupsPolicy.STRICT and not settings.features().supplemental_groups_policy:
        raise UnsupportedByRuntime("SupplementalGroupsPolicy=Strict is not supported in this node")
    found["supplemental_groups_policy"] = policy


def _user_namespace(pod: Pod, settings: PodConfigSettings, id_range: IdRange | None) -> Obj:
    if pod["spec"].get("hostUsers") is not False:
        return {"mode": NamespaceMode.NODE}
    if not settings.features().user_namespaces:
        message = "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
        raise UnsupportedByRuntime(message)
    if id_range is None:
        message = "can't set `spec.hostUsers: false`, the node has no user ids for user namespaces"
        raise UnsupportedByRuntime(message)
    mapping = id_mapping(id_range)
    return {"mode": NamespaceMode.POD, "uids": [mapping], "gids": [mapping]}


def id_mapping(id_range: IdRange) -> Obj:
    """Return CRI's IDMapping of a Pod's user namespace."""
    return {"host_id": id_range.first, "container_id": 0, "length": id_range.length}


def _seccomp(pod: Pod, spec: ObjView, settings: PodConfigSettings) -> Obj:
    profile: ObjView | None = (spec.get("securityContext") or {}).get("seccompProfile")
    if profile is None:
        profile = (pod["spec"].get("securityContext") or {}).get("seccompProfile")
    if profile is None:
        default = ProfileType.RUNTIME_DEFAULT if settings.seccomp_default else ProfileType.UNCONFINED
        return {"profile_type": default}
    if profile.get("type") != "Localhost":
        return {"profile_type": _SECCOMP_TYPES.get(profile.get("type", ""), ProfileType.UNCONFINED)}
    path = profile.get("localhostProfile") or ""
    if not path:
        raise ContainerConfigError("localhostProfile must be set if seccompProfile type is Localhost.")
    if ".." in PurePosixPath(path).parts:
        raise ContainerConfigError(f"localhostProfile {quote(path)} must not contain '..'")
    return {"profile_type": ProfileType.LOCALHOST, "localhost_ref": f"{settings.seccomp_root}/{path.lstrip('/')}"}


def _apparmor_profile(pod: Pod, spec: ObjView) -> ObjView | None:
    """Return the AppArmor profile of a container, or None. Static Pods may still have it in an annotation."""
    own: ObjView | None = (spec.get("securityContext") or {}).get("appArmorProfile")
    if own is not None:
        return own
    text: str = (pod["metadata"].get("annotations") or {}).get(APP_ARMOR + spec["name"]) or ""
    for name, (_, legacy) in _APPARMOR_TYPES.items():
        if text == legacy:
            return {"type": name}
    if text.startswith(_APPARMOR_LOCALHOST):
        return {"type": "Localhost", "localhostProfile": text.removeprefix(_APPARMOR_LOCALHOST)}
    level: ObjView | None = (pod["spec"].get("securityContext") or {}).get("appArmorProfile")
    return level


def _apparmor(pod: Pod, spec: ObjView) -> Obj:
    """Return the fields of a container's AppArmor profile, with the older one for runtimes that know no other."""
    profile = _apparmor_profile(pod, spec)
    if profile is None:
        return {}
    kind = profile.get("type") or ""
    if kind in _APPARMOR_TYPES:
        number, legacy = _APPARMOR_TYPES[kind]
        return {"apparmor": {"profile_type": number}, "apparmor_profile": legacy}
    if kind != "Localhost":
        raise ContainerConfigError(f"unknown apparmor profile type: {quote(kind)}")
    name = profile.get("localhostProfile")
    if name is None:
        raise ContainerConfigError("missing localhost apparmor profile name")
    reference = {"profile_type": ProfileType.LOCALHOST, "localhost_ref": name}
    return {"apparmor": reference, "apparmor_profile": _APPARMOR_LOCALHOST + name}
