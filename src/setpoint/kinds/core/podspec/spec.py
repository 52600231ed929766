"""Validation of pod specs and pod templates."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.kinds.core.podspec.annotations import MIRROR, validate_pod_annotations, validate_profiles_match
from setpoint.kinds.core.podspec.containers import (
    PodScope,
    validate_containers,
    validate_ephemeral_containers,
    validate_init_containers,
)
from setpoint.kinds.core.podspec.options import CREATE, PodOptions
from setpoint.kinds.core.podspec.resources import validate_overhead, validate_pod_level_resources
from setpoint.kinds.core.podspec.scheduling import validate_affinity, validate_tolerations, validate_topology_spread
from setpoint.kinds.core.podspec.security import (
    containers_with_path,
    validate_host_process,
    validate_host_users,
    validate_os,
    validate_pod_security_context,
    validate_share_process_namespace,
)
from setpoint.kinds.core.podspec.volumes import validate_volumes
from setpoint.kinds.internal_form import as_json, shown
from setpoint.meta.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_long,
)
from setpoint.meta.names import (
    _dns1123_subdomain,
    dns1123_label,
    dns1123_subdomain,
    dns1123_subdomain_underscore,
    in_range,
    ip_legacy,
    qualified_name,
)
from setpoint.meta.objectmeta import validate_annotations, validate_labels
from setpoint.meta.objects import ObjView

_MAX_NAMESERVERS, _MAX_SEARCHES, _MAX_SEARCHES_LENGTH, _MAX_HOSTNAME_LENGTH = 3, 32, 2048, 64


def _validate_dns_config(config: ObjView | None, policy: str, path: str, errs: Errors) -> None:
    if policy == "None":
        if config is None:
            errs.append(required(path, "must provide `dnsConfig` when `dnsPolicy` is None"))
            return
        if not config.get("nameservers"):
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            errs.append(required(f"{path}.nameservers", text))
            return
    if config is None:
        return
    servers, searches = config.get("nameservers", ()), config.get("searches", ())
    if len(servers) > _MAX_NAMESERVERS:
        text = f"must not have more than {_MAX_NAMESERVERS} nameservers"
        errs.append(invalid(f"{path}.nameservers", as_json(servers), text))
    for i, server in enumerate(servers):
        for text in ip_legacy(server):
            errs.append(invalid(f"{path}.nameservers[{i}]", server, text))
    if len(searches) > _MAX_SEARCHES:
        text = f"must not have more than {_MAX_SEARCHES} search paths"
        errs.append(invalid(f"{path}.searches", as_json(searches), text))
    if len(" ".join(searches).encode()) > _MAX_SEARCHES_LENGTH:
        text = f"must not have more than {_MAX_SEARCHES_LENGTH} characters (including spaces) in the search list"
        errs.append(invalid(f"{path}.searches", as_json(searches), text))
    for i, search in enumerate(searches):
        if search != ".":
            search = search.removesuffix(".")
            for text in dns1123_subdomain_underscore(search):
                errs.append(invalid(f"{path}.searches[{i}]", search, text))
    for i, option in enumerate(config.get("options", ())):
        if not option.get("name"):
            errs.append(required(f"{path}.options[{i}]", "must not be empty"))


def _validate_hostname_override(spec: ObjView, path: str, errs: Errors) -> None:
    name = spec["hostnameOverride"]
    if spec.get("setHostnameAsFQDN"):
        errs.append(forbidden(path, "may not be specified when setHostnameAsFQDN is true"))
    if spec.get("hostNetwork"):
        errs.append(forbidden(path, "may not be specified when hostNetwork is true"))
    if len(name.encode()) > _MAX_HOSTNAME_LENGTH:
        errs.append(too_long(path, _MAX_HOSTNAME_LENGTH))
    for text in dns1123_subdomain(name):
        errs.append(invalid(path, name, text))


def _validate_host_aliases(aliases: Sequence[ObjView], path: str, errs: Errors) -> None:
    for i, alias in enumerate(aliases):
        address = alias.get("ip", "")
        for text in ip_legacy(address):
            errs.append(invalid(f"{path}[{i}].ip", address, text))
        for j, name in enumerate(alias.get("hostnames", ())):
            for text in dns1123_subdomain(name):
                errs.append(invalid(f"{path}[{i}].hostnames[{j}]", name, text))


def _validate_readiness_gates(gates: Sequence[ObjView], path: str, errs: Errors) -> None:
    for i, gate in enumerate(gates):
        condition = gate.get("conditionType", "")
        for text in qualified_name(condition):
            errs.append(invalid(f"{path}[{i}].conditionType", condition, text))


def _validate_scheduling_gates(gates: Sequence[ObjView], path: str, errs: Errors) -> None:
    seen: set[str] = set()
    for i, gate in enumerate(gates):
        name = gate.get("name", "")
        for text in qualified_name(name):
            errs.append(invalid(f"{path}[{i}]", name, text))
        if name in seen:
            errs.append(duplicate(f"{path}[{i}]", name))
        seen.add(name)


_RESTART = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION = ("PreemptLowerPriority", "Never")
_NO_VOLUMES: dict[str, ObjView] = {}
_NO_CLAIMS: frozenset[str] = frozenset()
_MAX_INT32 = 2**31 - 1


def validate_pod_spec(
    spec: ObjView,
    path: str,
    errs: Errors,
    *,
    meta: ObjView | None = None,
    options: PodOptions = CREATE,
) -> None:
    """Validate a pod spec. `meta` is the Pod's metadata; None for templates, whose pods have no name yet."""
    get = spec.get
    grace = get("terminationGracePeriodSeconds")
    if grace is None:
        errs.append(required(f"{path}.terminationGracePeriodSeconds", ""))
    volumes = _NO_VOLUMES
    if "volumes" in spec:
        volumes = validate_volumes(spec["volumes"], meta, f"{path}.volumes", errs, options=options)
    claims = _NO_CLAIMS
    if "resourceClaims" in spec:
        claims = frozenset(claim["name"] for claim in spec["resourceClaims"] if claim.get("name"))
        _validate_resource_claims(spec["resourceClaims"], meta, f"{path}.resourceClaims", errs)
    restart_policy = get("restartPolicy", "")
    host_users = get("hostUsers") is not False
    scope = PodScope(options, volumes, claims, grace, restart_policy, get("os"), host_users)
    containers = get("containers")
    validate_containers(containers, scope, f"{path}.containers", errs)
    if "initContainers" in spec:
        validate_init_containers(spec["initContainers"], containers or (), scope, f"{path}.initContainers", errs)
    if "ephemeralContainers" in spec:
        at = f"{path}.ephemeralContainers"
        validate_ephemeral_containers(spec["ephemeralContainers"], spec, scope, at, errs)
    if "resources" in spec:
        validate_pod_level_resources(spec, f"{path}.resources", errs, claim_names=claims, options=options)
    if get("hostNetwork"):
        _validate_host_network(containers or (), f"{path}.containers", errs, options)
    _validate_choice(restart_policy, _RESTART, f"{path}.restartPolicy", errs)
    dns_policy = get("dnsPolicy", "")
    _validate_choice(dns_policy, _DNS, f"{path}.dnsPolicy", errs, by_pointer=True)
    if "nodeSelector" in spec:
        validate_labels(spec["nodeSelector"], f"{path}.nodeSelector", errs)
    security = get("securityContext")
    if security:
        validate_pod_security_context(security, spec, f"{path}.securityContext", errs, options=options)
    if "shareProcessNamespace" in spec:
        validate_share_process_namespace(spec, path, errs)
    if "affinity" in spec:
        validate_affinity(spec["affinity"], f"{path}.affinity", errs, options=options)
    if dns_policy == "None" or "dnsConfig" in spec:
        _validate_dns_config(get("dnsConfig"), dns_policy, f"{path}.dnsConfig", errs)
    if "readinessGates" in spec:
        _validate_readiness_gates(spec["readinessGates"], f"{path}.readinessGates", errs)
    if "schedulingGates" in spec:
        _validate_scheduling_gates(spec["schedulingGates"], f"{path}.schedulingGates", errs)
    if "topologySpreadConstraints" in spec:
        at = f"{path}.topologySpreadConstraints"
        validate_topology_spread(spec["topologySpreadConstraints"], at, errs, options=options)
    validate_host_process(spec, path, errs)
    if not host_users:
        validate_host_users(spec, path, errs, options=options)
    if "hostnameOverride" in spec:
        _validate_hostname_override(spec, f"{path}.hostnameOverride", errs)
    account = get("serviceAccountName", "")
    if account:
        _validate_name(account, f"{path}.serviceAccountName", errs)
    if get("serviceAccount", "") != account:
        text = f'must be the same as serviceAccountName: "{account}"'
        errs.append(invalid(f"{path}.deprecatedServiceAccount", get("serviceAccount", ""), text))
    if "nodeName" in spec:
        _validate_name(spec["nodeName"], f"{path}.nodeName", errs)
    deadline = get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_INT32:
        errs.append(invalid(f"{path}.activeDeadlineSeconds", deadline, in_range(1, _MAX_INT32)))
    for name in ("hostname", "subdomain"):
        if name in spec:
            for text in dns1123_label(spec[name]):
                errs.append(invalid(f"{path}.{name}", spec[name], text))
    if "tolerations" in spec:
        loose = options.allow_toleration_comparison
        validate_tolerations(spec["tolerations"], f"{path}.tolerations", errs, allow_comparison=loose)
    if "hostAliases" in spec:
        _validate_host_aliases(spec["hostAliases"], f"{path}.hostAliases", errs)
    if "priorityClassName" in spec:
        _validate_name(spec["priorityClassName"], f"{path}.priorityClassName", errs)
    if "runtimeClassName" in spec:
        _validate_name(spec["runtimeClassName"], f"{path}.runtimeClassName", errs)
    if "preemptionPolicy" in spec:
        _validate_choice(spec["preemptionPolicy"], _PREEMPTION, f"{path}.preemptionPolicy", errs, by_pointer=True)
    if "overhead" in spec:
        validate_overhead(spec["overhead"], f"{path}.overhead", errs, options=options)
    if "os" in spec:
        validate_os(spec, path, errs)
    if "schedulingGroup" in spec:
        _validate_scheduling_group(spec, path, errs)
    if scope.reads_files:
        _validate_file_key_volumes(spec, path, errs)


def _validate_choice(value: str, choices: Sequence[str], path: str, errs: Errors, *, by_pointer: bool = False) -> None:
    if value not in choices:
        shown_value = as_json(value) if by_pointer else value
        errs.append(not_supported(path, shown_value, choices) if value else required(path, ""))


def _validate_name(name: str, path: str, errs: Errors) -> None:
    for text in _dns1123_subdomain(name):
        errs.append(invalid(path, name, text))


def _validate_host_network(containers: Sequence[ObjView], path: str, errs: Errors, options: PodOptions) -> None:
    for i, container in enumerate(containers):
        for j, port in enumerate(container.get("ports", ())):
            host = port.get("hostPort", 0)
            # A template may lack the host port: it is filled in when the pod is created.
            if (host or options.is_pod) and host != port.get("containerPort", 0):
                text = "must match `containerPort` when `hostNetwork` is true"
                errs.append(invalid(f"{path}[{i}].ports[{j}].hostPort", host, text))


def _validate_resource_claims(claims: Sequence[ObjView], meta: ObjView | None, path: str, errs: Errors) -> None:
    static = MIRROR in ((meta or {}).get("annotations") or ())
    seen: set[str] = set()
    for i, claim in enumerate(claims):
        at = f"{path}[{i}]"
        if static:
            errs.append(forbidden("[]", "static pods do not support resource claims"))
            continue
        name = claim.get("name", "")
        direct, template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
        if not name:
            errs.append(required(f"{at}.name", ""))
        elif name in seen:
            errs.append(duplicate(f"{at}.name", name))
        else:
            for text in dns1123_label(name):
                errs.append(invalid(f"{at}.name", name, text))
            seen.add(name)
        if direct is not None and template is not None:
            text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errs.append(invalid(at, shown("PodResourceClaim", claim), text))
        if direct is None and template is None:
            text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errs.append(invalid(at, shown("PodResourceClaim", claim), text))
        if direct is not None:
            _validate_name(direct, f"{at}.resourceClaimName", errs)
        if template is not None:
            _validate_name(template, f"{at}.resourceClaimTemplateName", errs)


def _validate_scheduling_group(spec: ObjView, path: str, errs: Errors) -> None:
    name = spec["schedulingGroup"].get("podGroupName")
    at = f"{path}.schedulingGroup.podGroupName"
    if name is None:
        errs.append(invalid(at, None, "must specify one of: `podGroupName`"))
    else:
        _validate_name(name, at, errs)
    if spec.get("evictionResponders"):
        errs.append(forbidden(f"{path}.schedulingGroup", "may not be set when evictionResponders is set"))


def _validate_file_key_volumes(spec: ObjView, path: str, errs: Errors) -> None:
    """Validate that variables from a file use an emptyDir of this pod."""
    for container, at in containers_with_path(spec, path):
        for i, variable in enumerate(container.get("env", ())):
            reference = (variable.get("valueFrom") or {}).get("fileKeyRef")
            if reference is None:
                continue
            name = reference.get("volumeName", "")
            where = f"{at}.env[{i}].valueFrom.fileKeyRef.volumeName"
            found = [volume for volume in spec.get("volumes", ()) if volume.get("name", "") == name]
            if not found:
                errs.append(not_found(where, name))
            elif "emptyDir" not in found[-1]:
                errs.append(invalid(where, name, "referenced volume must be of type emptyDir"))


def validate_pod_template(template: ObjView, path: str, errs: Errors, *, options: PodOptions = CREATE) -> None:
    spec = template.get("spec") or {}
    validate_pod_template_metadata(template, path, errs, options=options)
    validate_pod_spec(spec, f"{path}.spec", errs, options=options)
    if annotations := (template.get("metadata") or {}).get("annotations"):
        validate_profiles_match(annotations, spec, f"{path}.spec", errs)
    if spec.get("ephemeralContainers"):
        errs.append(forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"))


def validate_pod_template_metadata(template: ObjView, path: str, errs: Errors, *, options: PodOptions) -> None:
    """Validate labels and annotations. Their field paths lack `metadata`, as upstream's do."""
    meta = template.get("metadata") or {}
    validate_labels(meta.get("labels"), f"{path}.labels", errs)
    if annotations := meta.get("annotations"):
        validate_annotations(annotations, f"{path}.annotations", errs)
        validate_pod_annotations(
            annotations,
            template.get("spec") or {},
            f"{path}.annotations",
            errs,
            allow_invalid_deletion_cost=options.allow_invalid_deletion_cost,
            allow_comparison=options.allow_toleration_comparison,
        )
