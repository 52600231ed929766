"""The policies of one sort with their bindings, as they are stored now, by the requests that they can concern."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from setpoint.apiserver.admission.dynamic.by_sort import BySort
from setpoint.apiserver.admission.dynamic.exempt import GROUP, from_policies, is_review
from setpoint.apiserver.admission.dynamic.matching import Criteria
from setpoint.apiserver.admission.dynamic.served import Served
from setpoint.apiserver.admission.plugin import Attributes, Obj, Reader
from setpoint.kinds.catalog import Resource

if TYPE_CHECKING:
    from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests

E = TypeVar("E")


class Binding(NamedTuple):
    name: str
    obj: Obj
    criteria: Criteria | None
    """None: whatever the policy matches."""


class Hook(Generic[E]):
    """A policy that is bound. It is compiled when a request first gets as far."""

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

    def again(self) -> Hook[E]:
        """The same policy, to be bound anew."""
        other: Hook[E] = object.__new__(Hook)
        other.__dict__.update(self.__dict__)
        other.bindings = []
        return other


class PolicySource(Generic[E]):
    def __init__(
        self,
        plural: str,
        reader: Reader,
        served: Served,
        compiler: Callable[[Obj], E],
        static: StaticManifests | None = None,
    ) -> None:
        """`plural`: of the bindings with `policybindings` for `policies`. `static`: those from files. They come before
        the others, and see what the others do not get to see."""
        self._static = static
        self._static_hooks: list[Hook[E]] = []
        self._static_by_sort: BySort[Hook[E]] = BySort(served)
        self._static_seen = 0
        self._policies, self._bindings = plural, plural.replace("policies", "policybindings")
        self._followed = served.followed(f"{GROUP}/{self._policies}/", f"{GROUP}/{self._bindings}/")
        self._reader = reader
        self._compiler = compiler
        self._hooks: dict[str, Hook[E]] = {}
        self._by_sort: BySort[Hook[E]] = BySort(served)

    def for_request(self, attrs: Attributes) -> tuple[Hook[E], ...]:
        """Those that the request could match, by name."""
        static = self._static
        if self._followed.changed() or (static is not None and static.revision != self._static_seen):
            if static is not None:
                self._read_static(static)
            self._hooks = self._read()
            self._by_sort.replace([*self._static_hooks, *(hook for _, hook in sorted(self._hooks.items()))])
        if static is not None and from_policies(attrs.resource):
            return self._static_by_sort.for_request(attrs)
        return self._by_sort.for_request(attrs)

    def sees(self, resource: Resource) -> bool:
        return not from_policies(resource) or (self._static is not None and not is_review(resource))

    def _read_static(self, static: StaticManifests) -> None:
        if static.revision != self._static_seen:
            self._static_seen = static.revision
            hooks = {policy["metadata"]["name"]: Hook(policy, self._compiler) for policy in static.of(self._policies)}
            for binding in static.of(self._bindings):
                hooks[binding["spec"]["policyName"]].bindings.append(_binding(binding))
            self._static_hooks = list(hooks.values())
        # Which of them can concern a request depends on what is served now, too.
        self._static_by_sort.replace(self._static_hooks)

    def _read(self) -> dict[str, Hook[E]]:
        hooks: dict[str, Hook[E]] = {}
        for binding in _by_name(self._reader.list(GROUP, self._bindings)):
            policy_name = binding["spec"].get("policyName", "")
            policy = self._reader.get(GROUP, self._policies, "", policy_name)
            if policy is None:
                continue
            if policy_name not in hooks:
                known = self._hooks.get(policy_name)
                same = known is not None and known.policy is policy
                hooks[policy_name] = known.again() if known is not None and same else Hook(policy, self._compiler)
            hooks[policy_name].bindings.append(_binding(binding))
        return hooks


def _binding(obj: Obj) -> Binding:
    match: dict[str, Any] | None = obj["spec"].get("matchResources")
    return Binding(obj["metadata"]["name"], obj, None if match is None else Criteria.of_match_resources(match))


def _by_name(objs: Iterable[Obj]) -> list[Obj]:
    return sorted(objs, key=lambda obj: str(obj["metadata"]["name"]))
