"""The configured admission policies of one kind with their bindings, and the parameters that bindings select."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from setpoint.apiserver.admission.dynamic.matching import GROUP, Criteria, HookIndex, exempt_from_policies, is_review
from setpoint.apiserver.admission.dynamic.served_resources import Kind, ServedResources
from setpoint.apiserver.admission.plugin import Attributes, Reader
from setpoint.apiserver.registry import Registry
from setpoint.kinds.catalog import Resource
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import SelectorError, from_label_selector

if TYPE_CHECKING:
    from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests


class ConfigurationError(Exception):
    """A policy or binding cannot be used as configured."""


def param_registry(policy: Obj, served: ServedResources) -> Registry | None:
    """Return the registry of the parameters, or None if the policy has none. Raises ConfigurationError."""
    param_kind = policy["spec"].get("paramKind")
    if param_kind is None:
        return None
    group, _, version = param_kind.get("apiVersion", "").rpartition("/")
    kind = Kind(group, version, param_kind.get("kind", ""))
    found = served.find(kind)
    if found is None:
        raise ConfigurationError(f"failed to find resource referenced by paramKind: '{kind}'")
    return found


async def params_of(registry: Registry | None, binding: Obj, namespace: str) -> list[Obj | None]:
    """Return the parameters of a binding; the policy is evaluated once for each. None stands for no parameter. Raises
    ConfigurationError."""
    reference = binding["spec"].get("paramRef")
    if registry is None or reference is None:
        return [None]
    param_namespace = reference.get("namespace", "")
    if registry.resource.namespaced:
        param_namespace = param_namespace or namespace
        if not param_namespace:
            raise ConfigurationError(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
    elif param_namespace:
        raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    name, selector = reference.get("name", ""), reference.get("selector")
    if name:
        entry = registry.cache.get(registry.key(param_namespace, name))
        entries = [] if entry is None else [entry]
    elif selector is not None:
        try:
            selects = from_label_selector(selector).matches
        except SelectorError as error:
            raise ConfigurationError(str(error)) from None
        entries = [
            entry
            for entry in registry.cache.scan(param_namespace)
            if selects(entry.obj["metadata"].get("labels") or {})
        ]
    else:
        raise ConfigurationError("one of name or selector must be provided")
    if not entries and reference.get("parameterNotFoundAction") == "Deny":
        raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
    if registry.encoding.remote:
        await registry.encoding.ready(entries)
    return [registry.encoding.shared(entry) for entry in entries]


E = TypeVar("E")


class Binding(NamedTuple):
    name: str
    obj: Obj
    criteria: Criteria | None
    """Additional match criteria; None means everything that the policy matches."""


class PolicyHook(Generic[E]):
    """A policy with its bindings. It is compiled when the first request matches it."""

    def __init__(self, policy: Obj, compiler: Callable[[Obj], E]) -> None:
        self.policy = policy
        self.name: str = policy["metadata"]["name"]
        self.criteria = Criteria.of_match_resources(policy["spec"].get("matchConstraints") or {})
        self.ignores_failure = policy["spec"].get("failurePolicy") == "Ignore"
        self.bindings: list[Binding] = []
        self._compiler = compiler
        self._evaluator: E | None = None

    @property
    def evaluator(self) -> E:
        if self._evaluator is None:
            self._evaluator = self._compiler(self.policy)
        return self._evaluator

    def unbound(self) -> PolicyHook[E]:
        """Return a copy without bindings that shares the compiled policy."""
        other: PolicyHook[E] = object.__new__(PolicyHook)
        other.__dict__.update(self.__dict__)
        other.bindings = []
        return other


class PolicySource(Generic[E]):
    """The stored and static policies of one kind."""

    def __init__(
        self,
        plural: str,
        reader: Reader,
        served: ServedResources,
        compiler: Callable[[Obj], E],
        static: StaticManifests | None = None,
    ) -> None:
        """`plural` names the policies; the plural of the bindings is derived from it. `static` holds policies from
        files: they precede the stored ones, and also apply to resources that are exempt from those."""
        self._static = static
        self._static_hooks: list[PolicyHook[E]] = []
        self._static_index: HookIndex[PolicyHook[E]] = HookIndex(served)
        self._static_seen = 0
        self._policies, self._bindings = plural, plural.replace("policies", "policybindings")
        self._changes = served.track_changes(f"{GROUP}/{self._policies}/", f"{GROUP}/{self._bindings}/")
        self._reader = reader
        self._compiler = compiler
        self._hooks: dict[str, PolicyHook[E]] = {}
        self._index: HookIndex[PolicyHook[E]] = HookIndex(served)

    def for_request(self, attrs: Attributes) -> tuple[PolicyHook[E], ...]:
        """Return the policies that the request could match, by name."""
        static = self._static
        if self._changes.changed() or (static is not None and static.revision != self._static_seen):
            if static is not None:
                self._read_static(static)
            self._hooks = self._read()
            self._index.replace([*self._static_hooks, *(hook for _, hook in sorted(self._hooks.items()))])
        if static is not None and exempt_from_policies(attrs.resource):
            return self._static_index.for_request(attrs)
        return self._index.for_request(attrs)

    def handles(self, resource: Resource) -> bool:
        """Return whether a policy may apply to the resource."""
        return not exempt_from_policies(resource) or (self._static is not None and not is_review(resource))

    def _read_static(self, static: StaticManifests) -> None:
        if static.revision != self._static_seen:
            self._static_seen = static.revision
            hooks = {
                policy["metadata"]["name"]: PolicyHook(policy, self._compiler)
                for policy in static.objects_of(self._policies)
            }
            for binding in static.objects_of(self._bindings):
                hooks[binding["spec"]["policyName"]].bindings.append(_binding(binding))
            self._static_hooks = list(hooks.values())
        # The policies that can match also depend on the served resources.
        self._static_index.replace(self._static_hooks)

    def _read(self) -> dict[str, PolicyHook[E]]:
        hooks: dict[str, PolicyHook[E]] = {}
        for binding in _by_name(self._reader.list(GROUP, self._bindings)):
            policy_name = binding["spec"].get("policyName", "")
            policy = self._reader.get(GROUP, self._policies, "", policy_name)
            if policy is None:
                continue
            if policy_name not in hooks:
                known = self._hooks.get(policy_name)
                same = known is not None and known.policy is policy
                hooks[policy_name] = (
                    known.unbound() if known is not None and same else PolicyHook(policy, self._compiler)
                )
            hooks[policy_name].bindings.append(_binding(binding))
        return hooks


def _binding(obj: Obj) -> Binding:
    match: dict[str, Any] | None = obj["spec"].get("matchResources")
    return Binding(obj["metadata"]["name"], obj, None if match is None else Criteria.of_match_resources(match))


def _by_name(objs: Iterable[Obj]) -> list[Obj]:
    return sorted(objs, key=lambda obj: str(obj["metadata"]["name"]))
