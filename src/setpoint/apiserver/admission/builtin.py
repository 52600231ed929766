"""The built-in plugins: their order, which of them are on without being asked for, and how each is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from setpoint.apiserver.admission.default_toleration_seconds import DefaultTolerationSeconds
from setpoint.apiserver.admission.limit_ranger import LimitRanger
from setpoint.apiserver.admission.namespace_auto_provision import CreateNamespace, NamespaceAutoProvision
from setpoint.apiserver.admission.namespace_exists import NamespaceExists
from setpoint.apiserver.admission.namespace_lifecycle import NamespaceLifecycle
from setpoint.apiserver.admission.plugin import Plugin, Reader
from setpoint.apiserver.admission.pod_security.plugin import PodSecurity
from setpoint.apiserver.admission.priority import Priority
from setpoint.apiserver.admission.resource_quota import ResourceQuota, WriteUsage
from setpoint.apiserver.admission.storage_object_in_use_protection import StorageObjectInUseProtection
from setpoint.apiserver.admission.taint_nodes_by_condition import TaintNodesByCondition
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.meta.clock import Clock, Ids


@dataclass(slots=True)
class Surroundings:
    """What plugins are given besides the write in hand."""

    reader: Reader
    authorizer: AuthorizerChain
    clock: Clock
    ids: Ids
    create_namespace: CreateNamespace
    write_usage: WriteUsage


# In the order in which they see a write.
_MAKERS: dict[str, Callable[[Surroundings], Plugin]] = {
    NamespaceAutoProvision.name: lambda s: NamespaceAutoProvision(s.reader, s.create_namespace),
    NamespaceLifecycle.name: lambda s: NamespaceLifecycle(s.reader),
    NamespaceExists.name: lambda s: NamespaceExists(s.reader),
    LimitRanger.name: lambda s: LimitRanger(s.reader),
    TaintNodesByCondition.name: lambda s: TaintNodesByCondition(),
    PodSecurity.name: lambda s: PodSecurity(s.reader, s.clock),
    Priority.name: lambda s: Priority(s.reader),
    DefaultTolerationSeconds.name: lambda s: DefaultTolerationSeconds(),
    StorageObjectInUseProtection.name: lambda s: StorageObjectInUseProtection(),
    ResourceQuota.name: lambda s: ResourceQuota(s.reader, s.write_usage),
}

_OFF = frozenset({NamespaceAutoProvision.name, NamespaceExists.name})

# Upstream's names that stand for nothing here; to switch one off is no mistake.
_ABSENT = frozenset(
    {
        "ServiceAccount",
        "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "PodGroupProtection", "ValidatingAdmissionPolicy",
        "ValidatingAdmissionWebhook",
    }
)  # fmt: skip


class UnknownPlugin(ValueError):
    """The message names the plugin and what there is to choose from."""


def build(surroundings: Surroundings, enable: Iterable[str] = (), disable: Iterable[str] = ()) -> list[Plugin]:
    """The default plugins, those of `enable` besides, without those of `disable`, in order. Raises UnknownPlugin."""
    enabled, disabled = frozenset(enable), frozenset(disable)
    unknown = sorted((enabled | disabled) - _MAKERS.keys() - _ABSENT)
    if unknown:
        raise UnknownPlugin(f"unknown plugin {unknown[0]!r}; there are {', '.join(sorted(_MAKERS))}")
    both = sorted(enabled & disabled)
    if both:
        raise UnknownPlugin(f"{both[0]} cannot be both enabled and disabled")
    wanted = (_MAKERS.keys() - _OFF | enabled) - disabled
    return [make(surroundings) for name, make in _MAKERS.items() if name in wanted]
