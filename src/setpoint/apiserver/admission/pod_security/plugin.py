"""PodSecurity: enforces, audits and warns about the Pod security standards that a namespace's labels name."""

from __future__ import annotations

from collections.abc import Iterable

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.apiserver.admission.pod_security.checks import Finding
from setpoint.apiserver.admission.pod_security.policy import (
    LEVELS,
    PRIVILEGED,
    PodSecuritySettings,
    Policy,
    Standard,
    evaluate,
    policy_of,
)
from setpoint.kinds.catalog import Resource
from setpoint.meta.clock import Clock
from setpoint.meta.errors import InternalError, Invalid
from setpoint.meta.goformat import aggregate
from setpoint.meta.objects import Obj, ObjView

_TEMPLATES = frozenset(
    {
        ("", "replicationcontrollers"),
        ("", "podtemplates"),
        ("apps", "replicasets"),
        ("apps", "deployments"),
        ("apps", "statefulsets"),
        ("apps", "daemonsets"),
        ("batch", "jobs"),
        ("batch", "cronjobs"),
    }
)
# These subresources cannot change the spec; all others are checked, known or not.
_IGNORED_SUBRESOURCES = frozenset({"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"})
_AUDIT = "pod-security.kubernetes.io/"
_EXEMPT = f"{_AUDIT}exempt"
_MAX_CHECKED_PODS = 3000
_MAX_CHECK_SECONDS = 1.0


class PodSecurity(Plugin):
    name = "PodSecurity"

    def __init__(self, reader: Reader, clock: Clock, settings: PodSecuritySettings | None = None) -> None:
        self._reader = reader
        self._clock = clock
        self._settings = settings or PodSecuritySettings()

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        if operation not in ("CREATE", "UPDATE"):
            return False
        kind = (resource.group, resource.plural)
        if kind == ("", "pods"):
            return subresource not in _IGNORED_SUBRESOURCES
        return not subresource and (kind == ("", "namespaces") or kind in _TEMPLATES)

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        plural = attrs.resource.plural
        if plural == "namespaces":
            self._check_namespace(attrs, attrs.obj)
        elif attrs.namespace in self._settings.namespaces:
            attrs.audit[_EXEMPT] = "namespace"
        elif attrs.user.name in self._settings.usernames:
            attrs.audit[_EXEMPT] = "user"
        elif plural == "pods":
            self._check_pod(attrs, attrs.obj)
        else:
            self._check_template(attrs, attrs.obj)

    # -- Pods and workloads ---------------------------------------------------------------------------------------

    def _check_pod(self, attrs: Attributes, pod: Obj) -> None:
        namespace = self._reader.get("", "namespaces", "", attrs.namespace)
        if namespace is None:
            raise InternalError.of(f'failed to lookup namespace "{attrs.namespace}"')
        policy = self._policy(namespace)
        if policy.privileged:
            attrs.audit[_AUDIT + "enforce-policy"] = "privileged:latest"
            return
        if attrs.old is not None and not _is_significant(pod["spec"], attrs.old["spec"]):
            return
        if self._exempts_runtime_class(attrs, pod["spec"]):
            return
        attrs.audit[_AUDIT + "enforce-policy"] = str(policy.enforce)
        found = evaluate(policy.enforce, pod["metadata"], pod["spec"])
        self._audit(attrs, policy, pod["metadata"], pod["spec"])
        if found:
            raise attrs.forbidden(f'violates PodSecurity "{policy.enforce}": {_joined_findings(found)}')
        self._warn(attrs, policy.warn, pod["metadata"], pod["spec"])

    def _check_template(self, attrs: Attributes, obj: Obj) -> None:
        """Audit and warn about a workload's template. Workloads are never denied; their Pods are."""
        namespace = self._reader.get("", "namespaces", "", attrs.namespace)
        if namespace is None:
            return
        policy = self._policy(namespace)
        if policy.warn.level == policy.audit.level == PRIVILEGED and not policy.errors:
            return
        template = _template(attrs.resource.plural, obj)
        if template is None:
            return
        meta, spec = template.get("metadata") or {}, template.get("spec") or {}
        if self._exempts_runtime_class(attrs, spec):
            return
        self._audit(attrs, policy, meta, spec)
        self._warn(attrs, policy.warn, meta, spec)

    def _policy(self, namespace: Obj) -> Policy:
        return policy_of(namespace["metadata"].get("labels"), self._settings.defaults)

    def _exempts_runtime_class(self, attrs: Attributes, spec: ObjView) -> bool:
        if spec.get("runtimeClassName") not in self._settings.runtime_classes:
            return False
        attrs.audit[_EXEMPT] = "runtimeClass"
        return True

    def _audit(self, attrs: Attributes, policy: Policy, meta: ObjView, spec: ObjView) -> None:
        if policy.errors:
            attrs.audit[_AUDIT + "error"] = "Failed to parse policy: " + aggregate(
                error.message() for error in policy.errors
            )
        found = evaluate(policy.audit, meta, spec)
        if found:
            attrs.audit[_AUDIT + "audit-violations"] = (
                f'would violate PodSecurity "{policy.audit}": {_joined_findings(found)}'
            )

    def _warn(self, attrs: Attributes, standard: Standard, meta: ObjView, spec: ObjView) -> None:
        found = evaluate(standard, meta, spec)
        if found:
            attrs.warn(f'would violate PodSecurity "{standard}": {_joined_findings(found)}')

    # -- Namespaces -----------------------------------------------------------------------------------------------

    def _check_namespace(self, attrs: Attributes, namespace: Obj) -> None:
        policy, name = self._policy(namespace), namespace["metadata"].get("name", "")
        before = self._policy(attrs.old) if attrs.old is not None else None
        if policy.errors and (before is None or before.errors != policy.errors):
            raise Invalid.of("", "Namespace", attrs.name, policy.errors)
        exempt = name in self._settings.namespaces
        if before is None:
            if exempt:
                self._warn_of_exemption(attrs, name, policy, namespace["metadata"].get("labels") or {})
            return
        if policy.enforce == before.enforce or policy.enforce.level == PRIVILEGED:
            return
        laxer = LEVELS.index(policy.enforce.level) <= LEVELS.index(before.enforce.level)
        if policy.enforce.minor == before.enforce.minor and laxer:
            return
        if exempt:
            self._warn_of_exemption(attrs, name, policy, namespace["metadata"].get("labels") or {})
        else:
            for text in self._violations(name, policy.enforce):
                attrs.warn(text)

    def _warn_of_exemption(self, attrs: Attributes, name: str, policy: Policy, labels: ObjView) -> None:
        """Warn if the labels of an exempt namespace have no effect."""
        modes = ("enforce", "audit", "warn")
        wanted, given = ([getattr(each, mode) for mode in modes] for each in (policy, self._settings.defaults))
        if all(one == other or one.level == other.level == PRIVILEGED for one, other in zip(wanted, given)):
            return
        if all(one.level == PRIVILEGED for one in wanted):
            return
        shown = [
            f"{mode}={standard}"
            for mode, standard in zip(modes, wanted)
            if standard.level != PRIVILEGED and (_AUDIT + mode in labels or f"{_AUDIT}{mode}-version" in labels)
        ]
        attrs.warn(
            f'namespace "{name}" is exempt from Pod Security, and the policy ({", ".join(shown)}) will be ignored'
        )

    def _violations(self, namespace: str, standard: Standard) -> list[str]:
        """Return warnings about existing Pods that violate the standard; one Pod of each controller is checked
        first."""
        classes = self._settings.runtime_classes
        pods = _one_per_controller_first(
            pod
            for pod in self._reader.list("", "pods", namespace)
            if not classes or pod["spec"].get("runtimeClassName") not in classes
        )
        deadline = self._clock.monotonic() + _MAX_CHECK_SECONDS
        checked = 0
        names: dict[str, list[str]] = {}
        for pod in pods[:_MAX_CHECKED_PODS]:
            checked += 1
            found = evaluate(standard, pod["metadata"], pod["spec"])
            if found:
                names.setdefault(", ".join(finding.reason for finding in found), []).append(pod["metadata"]["name"])
            if self._clock.monotonic() > deadline:
                break
        warnings = []
        if checked < len(pods):
            warnings.append(
                f"new PodSecurity enforce level only checked against the first {checked} of {len(pods)} existing pods"
            )
        if names:
            warnings.append(
                f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{standard}"'
            )
        return warnings + sorted(f"{_first(pods)}: {reason}" for reason, pods in names.items())


def _is_significant(spec: ObjView, old: ObjView) -> bool:
    """Return whether images changed or ephemeral containers were added; nothing else that can change matters."""
    for key in ("containers", "initContainers"):
        now, before = spec.get(key) or (), old.get(key) or ()
        if [container.get("image") for container in now] != [container.get("image") for container in before]:
            return True
    known = {container.get("name"): container.get("image") for container in old.get("ephemeralContainers") or ()}
    return any(
        container.get("name") not in known or known[container.get("name")] != container.get("image")
        for container in spec.get("ephemeralContainers") or ()
    )


def _template(plural: str, obj: Obj) -> Obj | None:
    if plural == "podtemplates":
        holder: Obj = obj
    elif plural == "cronjobs":
        holder = ((obj.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}
    else:
        holder = obj.get("spec") or {}
    return holder.get("template")


def _one_per_controller_first(pods: Iterable[Obj]) -> list[Obj]:
    first, others, seen = [], [], set()
    for pod in pods:
        owner = next(
            (ref.get("uid") for ref in pod["metadata"].get("ownerReferences") or () if ref.get("controller")), None
        )
        if owner is not None and owner in seen:
            others.append(pod)
        else:
            seen.add(owner)
            first.append(pod)
    return first + others


def _first(names: list[str]) -> str:
    least, others = min(names), len(names) - 1
    if not others:
        return least
    return f"{least} (and {others} other {'pod' if others == 1 else 'pods'})"


def _joined_findings(found: list[Finding]) -> str:
    return ", ".join(map(str, found))
