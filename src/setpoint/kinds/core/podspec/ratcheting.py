"""Parts of a stored pod spec that updates may retain: values that break a newer rule, fields of disabled features."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.core.podspec.annotations import has_valid_deletion_cost
from setpoint.kinds.core.podspec.options import CREATE, PodOptions, all_containers
from setpoint.kinds.core.podspec.paths import validate_local_non_reserved_path
from setpoint.kinds.core.podspec.resources import is_sidecar
from setpoint.kinds.core.podspec.scheduling import PREFERRED, REQUIRED, validate_match_label_keys
from setpoint.kinds.core.podspec.security import host_sysctl_error
from setpoint.kinds.core.resources import is_divisible_by_page, is_huge_page
from setpoint.meta.field import FieldError
from setpoint.meta.names import label_value
from setpoint.meta.objectmeta import validate_label_selector
from setpoint.meta.objects import Obj, ObjView


def pod_template_options(old: ObjView | None) -> PodOptions:
    """Return options for a template that replaces `old`; None: a new one."""
    return pod_options(old) if old else CREATE


def pod_options(old: ObjView, *, is_pod: bool = False) -> PodOptions:
    """Return the options for an update of `old`, the metadata and spec of the stored Pod or template."""
    spec = old.get("spec") or {}
    private_users = spec.get("hostUsers") is False
    return PodOptions(
        is_pod=is_pod,
        allow_invalid_deletion_cost=not has_valid_deletion_cost((old.get("metadata") or {}).get("annotations")),
        allow_invalid_selector_values="affinity" in spec and _has_bad_pod_affinity(spec["affinity"]),
        allow_indivisible_huge_pages=_has_broken_pages(spec),
        allow_invalid_spread_selector=_has_bad_spread_selector(spec),
        allow_non_local_token_path=_has_bad_token_path(spec),
        allow_host_sysctls=any(
            host_sysctl_error(one.get("name", ""), spec)
            for one in (spec.get("securityContext") or {}).get("sysctls", ())
        ),
        allow_invalid_node_affinity_values="affinity" in spec and _has_bad_node_affinity(spec["affinity"]),
        allow_invalid_match_label_keys=_has_bad_match_label_keys(spec),
        allow_toleration_comparison=any(t.get("operator") in ("Lt", "Gt") for t in spec.get("tolerations", ())),
        allow_user_namespace_host_network=private_users and bool(spec.get("hostNetwork")),
        allow_user_namespace_devices=private_users and any(c.get("volumeDevices") for c in all_containers(spec)),
        allow_empty_image_reference=any(
            "image" in volume and not volume["image"].get("reference") for volume in spec.get("volumes", ())
        ),
        allow_restart_container_for_init=any(
            policy.get("restartPolicy") == "RestartContainer"
            for container in spec.get("initContainers", ())
            if not is_sidecar(container)
            for policy in container.get("resizePolicy", ())
        ),
        allow_sys_admin_without_escalation=any(_has_sys_admin(c.get("securityContext")) for c in all_containers(spec)),
    )


def _has_sys_admin(context: ObjView | None) -> bool:
    if not context or context.get("allowPrivilegeEscalation"):
        return False
    return "CAP_SYS_ADMIN" in (context.get("capabilities") or {}).get("add", ())


def _has_broken_pages(spec: ObjView) -> bool:
    lists = [spec.get("overhead")]
    for container in all_containers(spec):
        resources = container.get("resources")
        if resources:
            lists += (resources.get("limits"), resources.get("requests"))
    return any(
        is_huge_page(name) and not is_divisible_by_page(name, amount)
        for amounts in lists
        if amounts
        for name, amount in amounts.items()
    )


def _has_bad_selector(selector: ObjView | None) -> bool:
    found: list[FieldError] = []
    validate_label_selector(selector, "", found)
    return bool(found)


def _has_bad_pod_affinity(affinity: ObjView) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        plain = [*terms.get(REQUIRED, ()), *(term.get("podAffinityTerm") or {} for term in terms.get(PREFERRED, ()))]
        if any(_has_bad_selector(term.get(name)) for term in plain for name in ("labelSelector", "namespaceSelector")):
            return True
    return False


def _has_bad_node_affinity(affinity: ObjView) -> bool:
    required = (affinity.get("nodeAffinity") or {}).get(REQUIRED) or {}
    return any(
        label_value(value)
        for term in required.get("nodeSelectorTerms") or ()
        for expression in term.get("matchExpressions", ())
        for value in expression.get("values", ())
    )


def _has_bad_spread_selector(spec: ObjView) -> bool:
    return any(_has_bad_selector(one.get("labelSelector")) for one in spec.get("topologySpreadConstraints", ()))


def _has_bad_match_label_keys(spec: ObjView) -> bool:
    found: list[FieldError] = []
    for one in spec.get("topologySpreadConstraints", ()):
        validate_match_label_keys(one.get("matchLabelKeys", ()), (), one.get("labelSelector"), "", found)
    return bool(found)


def _has_bad_token_path(spec: ObjView) -> bool:
    found: list[FieldError] = []
    for volume in spec.get("volumes", ()):
        if "projected" in volume:
            for source in volume["projected"].get("sources") or ():
                if "serviceAccountToken" in source:
                    validate_local_non_reserved_path(source["serviceAccountToken"].get("path", ""), "", found)
    return bool(found)


Uses = dict[str, list[tuple[Obj, str]]]
"""Locations in a spec that use a feature, by feature."""

_INIT_CONTAINER_ANNOTATIONS = (
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
)
_VOLUME_SOURCES = ("secret", "configMap", "downwardAPI", "projected")
_PROJECTIONS = ("secret", "downwardAPI", "configMap", "serviceAccountToken", "clusterTrustBundle", "podCertificate")


def drop_disabled_template_fields(template: Obj | None, old: ObjView | None = None) -> None:
    """Drop disabled fields, for the `prepare_*` hooks of every kind with a pod template."""
    if template:
        drop_disabled_fields(template.get("spec") or {}, template.get("metadata"), (old or {}).get("spec"))


def drop_disabled_fields(spec: Obj, meta: Obj | None, old_spec: ObjView | None = None) -> None:
    uses = _uses(spec)
    if uses:
        used_before = _uses(old_spec) if old_spec else {}
        for feature, places in uses.items():
            if feature not in used_before:
                for holder, key in places:
                    holder.pop(key, None)
                if feature == "ContainerStopSignals":
                    _drop_empty_lifecycles(spec)
    annotations = (meta or {}).get("annotations")
    if annotations:
        drop_init_container_annotations(annotations)


def drop_init_container_annotations(annotations: Obj) -> None:
    """Drop the legacy annotations of init containers, which fields have replaced."""
    for name in _INIT_CONTAINER_ANNOTATIONS:
        annotations.pop(name, None)


def _drop_empty_lifecycles(spec: Obj) -> None:
    for key in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(key) or ():
            if container.get("lifecycle") == {}:
                del container["lifecycle"]


def _uses(spec: Any) -> Uses:
    uses: Uses = {}
    if "schedulingGroup" in spec:
        uses["GenericWorkload"] = [(spec, "schedulingGroup")]
    if spec.get("evictionResponders"):
        uses["EvictionRequestAPI"] = [(spec, "evictionResponders")]
    for volume in spec.get("volumes", ()):
        _find_in_volume(volume, uses)
    for key in ("initContainers", "containers", "ephemeralContainers"):
        if key in spec:
            for container in spec[key] or ():
                _find_in_container(container, uses)
    return uses


def _note(uses: Uses, feature: str, holder: Obj, key: str) -> None:
    uses.setdefault(feature, []).append((holder, key))


def _find_in_volume(volume: Obj, uses: Uses) -> None:
    if "emptyDir" in volume and "mode" in volume["emptyDir"]:
        _note(uses, "EmptyDirVolumeMode", volume["emptyDir"], "mode")
    # Of several sources, which validation will reject, only the first is considered.
    for kind in _VOLUME_SOURCES:
        if kind in volume:
            source = volume[kind]
            _find_users(source, "defaultUser", uses)
            if kind == "projected":
                for projection in source.get("sources") or ():
                    for part in _PROJECTIONS:
                        if part in projection:
                            _find_users(projection[part], "user", uses)
                            break
            return


def _find_users(source: Obj, key: str, uses: Uses) -> None:
    if key in source:
        _note(uses, "AtomicWriteVolumeUserFields", source, key)
    for item in source.get("items", ()):
        if "user" in item:
            _note(uses, "AtomicWriteVolumeUserFields", item, "user")


def _find_in_container(container: Obj, uses: Uses) -> None:
    for mount in container.get("volumeMounts", ()):
        if "bindMountOptions" in mount:
            _note(uses, "VolumeBindMountOptions", mount, "bindMountOptions")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            probe = container[name]
            if "grpc" in probe and "mode" in probe["grpc"]:
                _note(uses, "GRPCContainerProbeTLS", probe["grpc"], "mode")
            if "httpGet" in probe and "protocol" in probe["httpGet"]:
                _note(uses, "H2CContainerProbe", probe["httpGet"], "protocol")
    if "lifecycle" in container:
        lifecycle = container["lifecycle"]
        if "stopSignal" in lifecycle:
            _note(uses, "ContainerStopSignals", lifecycle, "stopSignal")
        for name in ("postStart", "preStop"):
            action = (lifecycle.get(name) or {}).get("httpGet")
            if action and "protocol" in action:
                _note(uses, "H2CContainerProbe", action, "protocol")


def drop_disabled_status_fields(status: Obj, old: ObjView) -> None:
    """Drop disabled fields of a Pod's status: volume health, claims of node resources, digests of image volumes."""
    for name in ("volumeHealth", "nodeAllocatableResourceClaimStatuses"):
        if name in status and not old.get(name):
            del status[name]
    shown = [mount for mount in _status_mounts(status) if "volumeStatus" in mount]
    if shown and not any("volumeStatus" in mount for mount in _status_mounts(old)):
        for mount in shown:
            del mount["volumeStatus"]


def _status_mounts(status: ObjView) -> list[Obj]:
    keys = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return [mount for key in keys for one in status.get(key, ()) for mount in one.get("volumeMounts", ())]
