"""Validation of status updates of a Pod."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.kinds.core.resources import is_huge_page
from setpoint.kinds.internal_form import as_json, internal
from setpoint.meta.field import Errors, duplicate, forbidden, invalid, not_found, not_supported, required, too_long
from setpoint.meta.field import internal as internal_error
from setpoint.meta.names import dns1123_label, dns1123_subdomain, group_id, ip_legacy, parse_ip, qualified_name
from setpoint.meta.objectmeta import IMMUTABLE
from setpoint.meta.objects import ObjView
from setpoint.meta.quantity import compare

_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_NON_NEGATIVE = "must be a non-negative integer"
_HEALTH = ("Healthy", "Unhealthy", "Unknown")
_MAX_HEALTH_MESSAGE_LENGTH = 1024
_MAX_UID = 2**32 - 1


def validate_pod_status(new: ObjView, old: ObjView, errs: Errors) -> None:
    status, before, spec = new.get("status") or {}, old.get("status") or {}, old["spec"]
    _validate_conditions(status.get("conditions", ()), errs)
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != before.get("nominatedNodeName", ""):
        for text in dns1123_subdomain(nominated):
            errs.append(invalid("status.nominatedNodeName", nominated, text))
        if spec.get("nodeName"):
            text = "may not be set on pods that are already bound to a node"
            errs.append(forbidden("status.nominatedNodeName", text))
    if status.get("observedGeneration", 0) < 0:
        errs.append(invalid("status.observedGeneration", status["observedGeneration"], _NON_NEGATIVE))
    if status.get("qosClass", "") != before.get("qosClass", ""):
        errs.append(invalid("status.qosClass", status.get("qosClass", ""), IMMUTABLE))
    _validate_transitions(status, before, spec, errs)
    _validate_claim_statuses(status, spec, errs)
    _validate_volume_health(status.get("volumeHealth", ()), spec, errs)
    _validate_pod_ips(status, before, errs)
    _validate_host_ips(status, before, errs)
    os_name = (spec.get("os") or {}).get("name", "linux")
    for key in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for i, one in enumerate(status.get(key, ())):
            if "user" in one:
                _validate_user(one["user"], os_name, f"status.{key}[{i}].user.linux", errs)
    for key, holder in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")):
        for i, one in enumerate(status.get(key, ())):
            if one.get("allocatedResourcesStatus"):
                _validate_resource_health(one, spec.get(holder) or (), status, f"status.{key}[{i}]", errs)
    for i, one in enumerate(status.get("ephemeralContainerStatuses", ())):
        if one.get("allocatedResourcesStatus"):
            at = f"status.ephemeralContainerStatuses[{i}].allocatedResourcesStatus"
            errs.append(forbidden(at, "must not be specified in container status"))


def _validate_conditions(conditions: Sequence[ObjView], errs: Errors) -> None:
    for i, condition in enumerate(conditions):
        if condition.get("observedGeneration", 0) < 0:
            at = f"status.conditions[{i}].observedGeneration"
            errs.append(invalid(at, condition["observedGeneration"], _NON_NEGATIVE))
        kind = condition.get("type", "")
        if kind not in _SYSTEM_CONDITIONS:
            for text in qualified_name(kind):
                errs.append(invalid(f"status.conditions[{i}].Type", kind, text))


# -- container states -------------------------------------------------------------------------------------------------


def container_should_restart(container: ObjView, pod_policy: str, exit_code: int) -> bool:
    """Return whether a container that exited with this code is restarted."""
    policy = container.get("restartPolicy")
    if policy is not None:
        for rule in container.get("restartPolicyRules", ()):
            codes = rule.get("exitCodes")
            if codes is None:
                continue
            hit = exit_code in codes.get("values", ())
            if (codes.get("operator") == "In" and hit) or (codes.get("operator") == "NotIn" and not hit):
                if rule.get("action") in ("Restart", "RestartAllContainers"):
                    return True
                break
        if policy in ("Always", "Never", "OnFailure"):
            pod_policy = policy
    if pod_policy == "OnFailure":
        return exit_code != 0
    return pod_policy != "Never"


def _terminated(status: ObjView) -> ObjView | None:
    found: ObjView | None = (status.get("state") or {}).get("terminated")
    return found


def _validate_transitions(status: ObjView, before: ObjView, spec: ObjView, errs: Errors) -> None:
    """Validate that a terminated container stays terminated, unless it is to be restarted."""
    restart_all = any(
        rule.get("action") == "RestartAllContainers"
        for key in ("initContainers", "containers")
        for container in spec.get(key) or ()
        for rule in container.get("restartPolicyRules", ())
    )
    for key, holder in (
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", ""),
    ):
        if holder and restart_all:
            continue
        for i, old in enumerate(before.get(key, ())):
            ended = _terminated(old)
            if ended is None:
                continue
            name = old.get("name", "")
            for new in status.get(key, ()):
                if new.get("name", "") != name or _terminated(new) is not None:
                    continue
                if not holder or not _may_restart(name, spec, holder, ended.get("exitCode", 0)):
                    text = "may not be transitioned to non-terminated state"
                    errs.append(forbidden(f"status.{key}[{i}].state", text))
                if holder:
                    break


def _may_restart(name: str, spec: ObjView, holder: str, exit_code: int) -> bool:
    for container in spec.get(holder) or ():
        if container.get("name", "") == name:
            return container_should_restart(container, spec.get("restartPolicy", ""), exit_code)
    return False


# -- resource claims and health ---------------------------------------------------------------------------------------


def _validate_claim_statuses(status: ObjView, spec: ObjView, errs: Errors) -> None:
    claims = spec.get("resourceClaims", ())
    known = {claim.get("name", "") for claim in claims}
    seen: set[str] = set()
    for i, one in enumerate(status.get("resourceClaimStatuses", ())):
        at, name = f"status.resourceClaimStatuses[{i}]", one.get("name", "")
        if name not in known:
            errs.append(invalid(f"{at}.name", name, "must match the name of an entry in `spec.resourceClaims`"))
        if name in seen:
            errs.append(duplicate(f"{at}.name", name))
        seen.add(name)
        if "resourceClaimName" in one:
            for text in dns1123_subdomain(one["resourceClaimName"]):
                errs.append(invalid(f"{at}.resourceClaimName", as_json(one["resourceClaimName"]), text))
    extended = status.get("extendedResourceClaimStatus")
    if extended is not None:
        _validate_extended(extended, spec, errs)
    referenced = (*claims, *status.get("resourceClaimStatuses", ()))
    names = {one["resourceClaimName"] for one in referenced if "resourceClaimName" in one}
    for i, one in enumerate(status.get("nodeAllocatableResourceClaimStatuses", ())):
        at, name = f"status.nodeAllocatableResourceClaimStatuses[{i}]", one.get("resourceClaimName", "")
        if not name:
            continue
        if name not in names:
            errs.append(invalid(f"{at}.resourceClaimName", name, "no mapping found in pod reference"))
        _validate_node_allocatable(one, at, errs)


def _validate_node_allocatable(one: ObjView, path: str, errs: Errors) -> None:
    for part, amounts in (("mapping", ("quantity",)), ("overhead", ("perPod", "perContainer"))):
        for i, item in enumerate(one.get(part, ())):
            at, name = f"{path}.{part}[{i}]", item.get("name", "")
            if name not in ("cpu", "memory") and not is_huge_page(name):
                errs.append(invalid(f"{at}.name", name, "must be a node allocatable resource name"))
            if part == "overhead" and not any(key in item for key in amounts):
                errs.append(invalid(at, "", "at least one of perPod or perContainer must be set"))
            for key in amounts:
                if key in item and compare(item[key], "0") < 0:
                    errs.append(invalid(f"{at}.{key}", item[key], "must be non-negative"))


def _validate_extended(status: ObjView, spec: ObjView, errs: Errors) -> None:
    path = "status.extendedResourceClaimStatus"
    containers = {c.get("name", ""): c for key in ("initContainers", "containers") for c in spec.get(key) or ()}
    mappings = status.get("requestMappings")
    if not mappings:
        errs.append(required(f"{path}.requestMappings", "at least one request mapping is required"))
    seen: set[tuple[str, str, str]] = set()
    for i, mapping in enumerate(mappings or ()):
        at = f"{path}.requestMappings[{i}]"
        key = (mapping.get("containerName", ""), mapping.get("resourceName", ""), mapping.get("requestName", ""))
        container = containers.get(key[0])
        if container is None:
            text = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            errs.append(invalid(f"{at}.containerName", key[0], text))
        elif key[1] not in ((container.get("resources") or {}).get("requests") or ()):
            text = (
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
                "spec.containers.resources.requests"
            )
            errs.append(invalid(f"{at}.resourceName", key[1], text))
        for text in dns1123_label(key[2]):
            errs.append(invalid(f"{path}.requestName", key[2], text))
        if key in seen:
            for field, value in zip(("containerName", "resourceName", "requestName"), key):
                errs.append(duplicate(f"{at}.{field}", value))
        seen.add(key)
    name = status.get("resourceClaimName", "")
    if not name:
        errs.append(required(f"{path}.resourceClaimName", ""))
    else:
        for text in dns1123_subdomain(name):
            errs.append(invalid(f"{path}.resourceClaimName", name, text))


def _validate_volume_health(healths: Sequence[ObjView], spec: ObjView, errs: Errors) -> None:
    volumes = {volume.get("name", "") for volume in spec.get("volumes", ())}
    for i, health in enumerate(healths):
        if health.get("name") and health["name"] not in volumes:
            errs.append(not_found(f"status.volumeHealth[{i}].name", health["name"]))


def _validate_resource_health(
    one: ObjView, containers: Sequence[ObjView], status: ObjView, path: str, errs: Errors
) -> None:
    container = next((c for c in containers if c.get("name", "") == one.get("name", "")), None)
    for j, resource in enumerate(one["allocatedResourcesStatus"]):
        at, name = f"{path}.allocatedResourcesStatus[{j}]", resource.get("name", "")
        if container is not None:
            text = _unknown_resource(name, container, status)
            if text:
                errs.append(invalid(f"{at}.name", name, text))
        seen: set[str] = set()
        for k, device in enumerate(resource.get("resources", ())):
            where, health, message = f"{at}.resources[{k}]", device.get("health", ""), device.get("message")
            if health not in _HEALTH:
                errs.append(not_supported(f"{where}.health", health, _HEALTH))
            if message is not None:
                if not message:
                    errs.append(required(f"{where}.message", "must be non-empty if specified"))
                elif len(message.encode()) > _MAX_HEALTH_MESSAGE_LENGTH:
                    errs.append(too_long(f"{where}.message", _MAX_HEALTH_MESSAGE_LENGTH))
            identity = device.get("resourceID", "")
            if identity in seen:
                errs.append(duplicate(f"{where}.resourceID", identity))
            seen.add(identity)


def _unknown_resource(name: str, container: ObjView, status: ObjView) -> str:
    resources = container.get("resources") or {}
    requests = resources.get("requests") or {}
    if not name.startswith("claim:"):
        return "" if name in requests else "must match one of the container's resource requests"
    for claim in resources.get("claims", ()):
        request = claim.get("request", "")
        if name == f"claim:{claim.get('name', '')}" + (f"/{request}" if request else ""):
            return ""
    extended = status.get("extendedResourceClaimStatus") or {}
    claim_name, _, request = name.removeprefix("claim:").partition("/")
    if request and claim_name == extended.get("resourceClaimName"):
        for mapping in extended.get("requestMappings") or ():
            if mapping.get("containerName") == container.get("name") and mapping.get("requestName") == request:
                amount = requests.get(mapping.get("resourceName", ""))
                if amount is not None and compare(amount, "0") != 0:
                    return ""
    return (
        "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when "
        "container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty"
    )


# -- addresses and users ----------------------------------------------------------------------------------------------


def _validate_pod_ips(status: ObjView, before: ObjView, errs: Errors) -> None:
    ips = status.get("podIPs", ())
    _validate_ips(ips, before.get("podIPs", ()), "status.podIPs", "PodIP", errs)
    if bool(status.get("podIP")) != bool(ips):
        shown = as_json([internal("PodIP", one) for one in ips] or None)
        errs.append(invalid("status.podIPs", shown, "podIP and podIPs must either both be set or both be unset"))
    elif ips and status["podIP"] != ips[0].get("ip", ""):
        errs.append(invalid("status.podIPs[0].ip", ips[0].get("ip", ""), "must be equal to `podIP`"))


def _validate_host_ips(status: ObjView, before: ObjView, errs: Errors) -> None:
    ips = status.get("hostIPs", ())
    if not ips:
        return
    if status.get("hostIP", "") != ips[0].get("ip", ""):
        errs.append(invalid("status.hostIPs[0].ip", ips[0].get("ip", ""), "must be equal to `hostIP`"))
    _validate_ips(ips, before.get("hostIPs", ()), "status.hostIPs", "HostIP", errs)


def _validate_ips(ips: Sequence[ObjView], before: Sequence[ObjView], path: str, type_name: str, errs: Errors) -> None:
    known = {one.get("ip", "") for one in before}
    for i, one in enumerate(ips):
        address = one.get("ip", "")
        if address not in known:
            for text in ip_legacy(address):
                errs.append(invalid(f"{path}[{i}]", address, text))
    if len(ips) > 1:
        parsed = [parse_ip(one.get("ip", "")) for one in ips]
        if None in parsed:
            i = parsed.index(None)
            text = f"failed to check for dual stack with error:invalid IP[{i}]: {ips[i].get('ip', '')}"
            errs.append(internal_error(path, text))
        families = {address.version for address in parsed if address is not None}
        # At most one of each family.
        if None in parsed or len(families) < 2 or len(ips) > 2:
            shown = as_json([internal(type_name, one) for one in ips])
            errs.append(invalid(path, shown, "may specify no more than one IP for each IP family"))


def _validate_user(user: ObjView, os_name: str, path: str, errs: Errors) -> None:
    linux = user.get("linux")
    if linux is None:
        return
    if os_name == "windows":
        errs.append(forbidden(path, "cannot be set for a windows pod"))
    elif os_name == "linux":
        uid = linux.get("uid", 0)
        if not 0 <= uid <= _MAX_UID:
            errs.append(invalid(f"{path}.uid", uid, f"must be between 0 and {_MAX_UID}, inclusive"))
        for text in group_id(linux.get("gid", 0)):
            errs.append(invalid(f"{path}.gid", linux.get("gid", 0), text))
        for i, group in enumerate(linux.get("supplementalGroups", ())):
            for text in group_id(group):
                errs.append(invalid(f"{path}.supplementalGroups[{i}]", group, text))
