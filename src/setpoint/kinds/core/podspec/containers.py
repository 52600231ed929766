"""Rules for regular, init and ephemeral containers, and for their volume mounts and devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from setpoint.kinds.core.podspec.env import validate_env, validate_env_from
from setpoint.kinds.core.podspec.options import PodOptions
from setpoint.kinds.core.podspec.paths import has_backsteps, validate_local_descending_path
from setpoint.kinds.core.podspec.probes import validate_lifecycle, validate_probes
from setpoint.kinds.core.podspec.resources import is_sidecar, validate_container_resources
from setpoint.kinds.core.podspec.security import validate_security_context
from setpoint.meta.caching import memoized
from setpoint.meta.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)
from setpoint.meta.names import _dns1123_label, port_name, port_number
from setpoint.meta.objects import ObjView

_NAME_AND_PATH = frozenset({"name", "mountPath", "readOnly"})
_PROPAGATION = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE = ("Disabled", "Enabled", "IfPossible")
_OPTIONS = ("nodev", "noexec", "nosuid")


def _validate_volume_mounts(
    mounts: Sequence[ObjView], container: ObjView, volumes: Mapping[str, ObjView], path: str, errs: Errors
) -> None:
    devices = {device.get("name", ""): device.get("devicePath", "") for device in container.get("volumeDevices", ())}
    used: set[str] = set()
    for i, mount in enumerate(mounts):
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            errs.append(required(f"{path}[{i}].name", ""))
        if name not in volumes:
            errs.append(not_found(f"{path}[{i}].name", name))
        if not target:
            errs.append(required(f"{path}[{i}].mountPath", ""))
        if target in used:
            errs.append(invalid(f"{path}[{i}].mountPath", target, "must be unique"))
        used.add(target)
        if devices:
            if name in devices:
                errs.append(invalid(f"{path}[{i}].name", name, "must not already exist in volumeDevices"))
            if target in devices.values():
                text = "must not already exist as a path in volumeDevices"
                errs.append(invalid(f"{path}[{i}].mountPath", target, text))
        if len(mount) > 2 and not mount.keys() <= _NAME_AND_PATH:
            _validate_mount_details(mount, i, container, volumes.get(name), path, errs)


def _validate_mount_details(
    mount: ObjView, i: int, container: ObjView, volume: ObjView | None, path: str, errs: Errors
) -> None:
    # Upstream reports several of these errors at the list, not at the item.
    sub_path, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    if sub_path:
        validate_local_descending_path(sub_path, f"{path}.subPath", errs)
    if expression:
        if sub_path:
            text = "subPathExpr and subPath are mutually exclusive"
            errs.append(invalid(f"{path}[{i}].subPathExpr", expression, text))
        validate_local_descending_path(expression, f"{path}.subPathExpr", errs)
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        if propagation not in _PROPAGATION:
            errs.append(not_supported(f"{path}.mountPropagation", propagation, _PROPAGATION))
        if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
            text = "Bidirectional mount propagation is available only to privileged containers"
            errs.append(forbidden(f"{path}.mountPropagation", text))
    recursive = mount.get("recursiveReadOnly")
    if recursive is not None:
        _validate_recursive_read_only(mount, recursive, f"{path}.recursiveReadOnly", errs)
    options = mount.get("bindMountOptions")
    if options:
        at = f"{path}[{i}].bindMountOptions"
        _validate_bind_mount_options(options, at, errs)
        if volume is not None and "image" in volume:
            errs.append(invalid(at, options, "bindMountOptions may not be used with image volumes"))


def _validate_recursive_read_only(mount: ObjView, mode: str, path: str, errs: Errors) -> None:
    if mode == "Disabled":
        return
    if mode not in _RECURSIVE:
        errs.append(not_supported(path, mode, _RECURSIVE))
        return
    if not mount.get("readOnly"):
        errs.append(forbidden(path, "may only be specified when readOnly is true"))
    if mount.get("mountPropagation", "None") != "None":
        errs.append(forbidden(path, "may only be specified when mountPropagation is None or not specified"))


def _validate_bind_mount_options(options: Sequence[str], path: str, errs: Errors) -> None:
    seen: set[str] = set()
    for i, option in enumerate(options):
        if option not in _OPTIONS:
            errs.append(not_supported(f"{path}[{i}]", option, _OPTIONS))
        if option in seen:
            errs.append(duplicate(f"{path}[{i}]", option))
        seen.add(option)


def _validate_volume_devices(
    devices: Sequence[ObjView], container: ObjView, volumes: Mapping[str, ObjView], path: str, errs: Errors
) -> None:
    mounts = {mount.get("name", ""): mount.get("mountPath", "") for mount in container.get("volumeMounts", ())}
    names: set[str] = set()
    paths: set[str] = set()
    for i, device in enumerate(devices):
        name, target = device.get("name", ""), device.get("devicePath", "")
        at_name, at_path = f"{path}[{i}].name", f"{path}[{i}].devicePath"
        if not name:
            errs.append(required(at_name, ""))
        if name in names:
            errs.append(invalid(at_name, name, "must be unique"))
        volume = volumes.get(name)
        if volume is None:
            errs.append(not_found(at_name, name))
        elif "persistentVolumeClaim" not in volume and "ephemeral" not in volume:
            text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            errs.append(invalid(at_name, name, text))
        if not target:
            errs.append(required(at_path, ""))
        if target in paths:
            errs.append(invalid(at_path, target, "must be unique"))
        if has_backsteps(target):
            errs.append(invalid(at_path, target, "can not contain backsteps ('..')"))
        else:
            paths.add(target)
        if name in mounts:
            errs.append(invalid(at_name, name, "must not already exist in volumeMounts"))
        if target in mounts.values():
            errs.append(invalid(at_path, target, "must not already exist as a path in volumeMounts"))
        if name:
            names.add(name)


_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_RESIZABLE = ("cpu", "memory")
_RESIZE_POLICIES = ("NotRequired", "RestartContainer")
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_RESTART_ACTIONS = ("Restart", "RestartAllContainers")
_PROBES = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_NOT_EPHEMERAL = (
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
)


@dataclass(slots=True)
class PodScope:
    """The properties of a pod that the rules for its containers need."""

    options: PodOptions
    volumes: Mapping[str, ObjView]
    """Valid volumes, by name."""
    claim_names: frozenset[str]
    grace: int | None
    restart_policy: str
    os: ObjView | None
    host_users: bool
    reads_files: bool = False
    """Whether some variable comes from a file; set during validation."""


def validate_containers(containers: Sequence[ObjView] | None, scope: PodScope, path: str, errs: Errors) -> None:
    if not containers:
        errs.append(required(path, ""))
        return
    names: set[str] = set()
    for i, container in enumerate(containers):
        at = f"{path}[{i}]"
        _validate_common(container, scope, at, errs)
        name = container.get("name", "")
        if name in names:
            errs.append(duplicate(f"{at}.name", name))
        names.add(name)
        if "lifecycle" in container:
            validate_lifecycle(container["lifecycle"], scope.grace, f"{at}.lifecycle", errs, os=scope.os)
        validate_probes(container, scope.grace, at, errs)
        if "restartPolicy" in container or "restartPolicyRules" in container:
            _validate_restart_policy(container, at, errs)
    _validate_host_ports(containers, path, errs)


def validate_init_containers(
    containers: Sequence[ObjView], regular: Sequence[ObjView], scope: PodScope, path: str, errs: Errors
) -> None:
    names = {container.get("name", "") for container in regular}
    for i, container in enumerate(containers):
        at = f"{path}[{i}]"
        _validate_common(container, scope, at, errs)
        if "restartPolicy" in container or "restartPolicyRules" in container:
            if "restartPolicy" in container:
                _validate_restart_policy(container, at, errs)
            else:
                text = "must specify restartPolicy when restart rules are used"
                errs.append(required(f"{at}.restartPolicy", text))
        name = container.get("name", "")
        if name in names:
            errs.append(duplicate(f"{at}.name", name))
        elif name:
            names.add(name)
        # Init containers run one by one: their ports collide only with themselves, and upstream counts from 0.
        _validate_host_ports((container,), path, errs)
        sidecar = is_sidecar(container)
        if sidecar:
            if "lifecycle" in container:
                validate_lifecycle(container["lifecycle"], scope.grace, f"{at}.lifecycle", errs, os=scope.os)
            validate_probes(container, scope.grace, at, errs)
        else:
            for probe in _PROBES:
                if probe in container:
                    text = "may not be set for init containers without restartPolicy=Always"
                    errs.append(forbidden(f"{at}.{probe}", text))
            if not scope.options.allow_restart_container_for_init:
                for j, policy in enumerate(container.get("resizePolicy", ())):
                    if policy.get("restartPolicy") == "RestartContainer":
                        text = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                        errs.append(invalid(f"{at}.resizePolicy[{j}].restartPolicy", "RestartContainer", text))


def validate_ephemeral_containers(
    containers: Sequence[ObjView], spec: ObjView, scope: PodScope, path: str, errs: Errors
) -> None:
    others = {c.get("name", "") for key in ("containers", "initContainers") for c in spec.get(key) or ()}
    names = set(others)
    text = "cannot be set for an Ephemeral Container"
    for i, container in enumerate(containers):
        at = f"{path}[{i}]"
        _validate_common(container, scope, at, errs)
        validate_image_padding(container, at, errs)
        name = container.get("name", "")
        if name in names:
            errs.append(duplicate(f"{at}.name", name))
        names.add(name)
        target = container.get("targetContainerName", "")
        if target and target not in others:
            errs.append(not_found(f"{at}.targetContainerName", target))
        for field in _NOT_EPHEMERAL:
            # An empty `resources` is always present.
            if container.get(field) or (field in container and field != "resources"):
                errs.append(forbidden(f"{at}.{field}", text))
        for j, mount in enumerate(container.get("volumeMounts", ())):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    errs.append(forbidden(f"{at}.volumeMounts[{j}].{field}", text))


def validate_image_padding(container: ObjView, path: str, errs: Errors) -> None:
    """Validate the image of a pod; a template may have a blank image, to be filled in later."""
    image = container.get("image", "")
    if image.strip() != image:
        errs.append(invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))


def _validate_common(container: ObjView, scope: PodScope, path: str, errs: Errors) -> None:
    get = container.get
    name = get("name", "")
    if not name:
        errs.append(required(f"{path}.name", ""))
    else:
        for text in _dns1123_label(name):
            errs.append(invalid(f"{path}.name", name, text))
    if not get("image"):
        errs.append(required(f"{path}.image", ""))
    policy = get("terminationMessagePolicy", "")
    if policy not in _MESSAGE_POLICIES:
        at = f"{path}.terminationMessagePolicy"
        errs.append(not_supported(at, policy, _MESSAGE_POLICIES) if policy else required(at, ""))
    if "ports" in container:
        _validate_ports(container["ports"], f"{path}.ports", errs)
    if "env" in container:
        scope.reads_files = validate_env(container["env"], f"{path}.env", errs) or scope.reads_files
    if "envFrom" in container:
        validate_env_from(container["envFrom"], f"{path}.envFrom", errs)
    if "volumeMounts" in container:
        _validate_volume_mounts(container["volumeMounts"], container, scope.volumes, f"{path}.volumeMounts", errs)
    if "volumeDevices" in container:
        _validate_volume_devices(container["volumeDevices"], container, scope.volumes, f"{path}.volumeDevices", errs)
    _validate_pull_policy(get("imagePullPolicy", ""), f"{path}.imagePullPolicy", errs)
    resources = get("resources")
    if resources:
        validate_container_resources(
            resources, f"{path}.resources", errs, claim_names=scope.claim_names, options=scope.options
        )
    if "resizePolicy" in container:
        _validate_resize_policy(container["resizePolicy"], scope.restart_policy, f"{path}.resizePolicy", errs)
    security = get("securityContext")
    if security:
        validate_security_context(
            security, f"{path}.securityContext", errs, host_users=scope.host_users, options=scope.options
        )


@memoized(maxsize=1024)
def _port_name_errors(name: str) -> tuple[str, ...]:
    return tuple(port_name(name))


def _validate_pull_policy(policy: str, path: str, errs: Errors) -> None:
    if policy not in _PULL_POLICIES:
        errs.append(not_supported(path, policy, _PULL_POLICIES) if policy else required(path, ""))


def _validate_ports(ports: Sequence[ObjView], path: str, errs: Errors) -> None:
    names: set[str] = set()
    for i, port in enumerate(ports):
        name = port.get("name", "")
        if name:
            texts = _port_name_errors(name)
            for text in texts:
                errs.append(invalid(f"{path}[{i}].name", name, text))
            if not texts:
                if name in names:
                    errs.append(duplicate(f"{path}[{i}].name", name))
                names.add(name)
        number = port.get("containerPort", 0)
        if not 0 < number < 65536:
            if not number:
                errs.append(required(f"{path}[{i}].containerPort", ""))
            for text in port_number(number) if number else ():
                errs.append(invalid(f"{path}[{i}].containerPort", number, text))
        host = port.get("hostPort", 0)
        if not 0 <= host < 65536:
            for text in port_number(host):
                errs.append(invalid(f"{path}[{i}].hostPort", host, text))
        protocol = port.get("protocol", "")
        if protocol not in _PROTOCOLS:
            at = f"{path}[{i}].protocol"
            errs.append(not_supported(at, protocol, _PROTOCOLS) if protocol else required(at, ""))


def _validate_host_ports(containers: Sequence[ObjView], path: str, errs: Errors) -> None:
    used: set[str] = set()
    for i, container in enumerate(containers):
        for j, port in enumerate(container.get("ports", ())):
            number = port.get("hostPort", 0)
            if number:
                key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{number}"
                if key in used:
                    errs.append(duplicate(f"{path}[{i}].ports[{j}].hostPort", key))
                used.add(key)


def _validate_resize_policy(policies: Sequence[ObjView], restart_policy: str, path: str, errs: Errors) -> None:
    seen: set[str] = set()
    for i, policy in enumerate(policies):
        resource, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if resource in seen:
            errs.append(duplicate(f"{path}[{i}]", resource))
        seen.add(resource)
        # From here on upstream reports errors at the list.
        if resource not in _RESIZABLE:
            errs.append(not_supported(path, resource, _RESIZABLE) if resource else required(path, ""))
        if restart not in _RESIZE_POLICIES:
            errs.append(not_supported(path, restart, _RESIZE_POLICIES) if restart else required(path, ""))
        if restart_policy == "Never" and restart != "NotRequired":
            text = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errs.append(invalid(path, restart, text))


def _validate_restart_policy(container: ObjView, path: str, errs: Errors) -> None:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules", ())
    if policy is None:
        if not rules:
            return
        errs.append(required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used"))
    elif policy not in _RESTART_POLICIES:
        errs.append(not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES))
    if len(rules) > 20:
        errs.append(too_many(f"{path}.restartPolicyRules", len(rules), 20))
    for i, rule in enumerate(rules):
        at = f"{path}.restartPolicyRules[{i}]"
        action = rule.get("action", "")
        if action not in _RESTART_ACTIONS:
            errs.append(not_supported(f"{at}.action", action, _RESTART_ACTIONS))
        codes = rule.get("exitCodes")
        if codes is None:
            errs.append(required(f"{at}.exitCodes", "must be specified"))
            continue
        operator = codes.get("operator", "")
        if operator not in ("In", "NotIn"):
            errs.append(not_supported(f"{at}.exitCodes.operator", operator, ("In", "NotIn")))
        if len(codes.get("values", ())) > 255:
            errs.append(too_many(f"{at}.exitCodes.values", len(codes["values"]), 255))
