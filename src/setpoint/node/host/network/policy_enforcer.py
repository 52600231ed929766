"""Enforces NetworkPolicies for the Pods of a node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from setpoint.client import Unreachable
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Forbidden
from setpoint.meta.objects import Obj
from setpoint.node.host.network.nft import NftError
from setpoint.node.host.network.policies import PolicyIndex, parse_policy, pod_facts
from setpoint.node.host.network.policy_rules import PolicyRules, isolated_pods
from setpoint.node.host.network.ruleset import Fragment, SectionTable, StateSection
from setpoint.reconcile import Informer, Manager
from setpoint.tasks import within

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

log = logging.getLogger("setpoint.node.network")

_PODS, _NAMESPACES = builtin("pods"), builtin("namespaces")
_POLICIES = builtin("networkpolicies", "networking.k8s.io")
_COALESCE: Final = 0.02
"""Seconds in which changes are collected before the table is changed."""
_ACCESS_RETRY: Final = 10.0
"""Seconds until the server is asked again after it has refused to list the objects."""
_ADMIT_TIMEOUT: Final = 5.0
"""Seconds that the start of a Pod waits for its rules."""


class PolicyEnforcer:
    """Follows NetworkPolicies, and the Pods and namespaces that they select, and keeps the rules of the node.

    Pods and namespaces are followed from the first policy on: a cluster without policies pays nothing for them. If the
    node may not read policies, they are not enforced, which is logged as an error.
    """

    def __init__(self, manager: Manager, node: str, table: SectionTable, clock: Clock) -> None:
        self._clock = clock
        self._table = table
        self._client = manager.client
        self._index = PolicyIndex(node)
        self._rules = PolicyRules(self._index)
        self._section = StateSection(table.reference, self._desired)
        table.add_section(self._section)
        self._policies = Informer[Obj](manager.client, _POLICIES, clock)
        self._pods = Informer[Obj](manager.client, _PODS, clock, transform=_reduced_pod)
        self._namespaces = Informer[Obj](manager.client, _NAMESPACES, clock, transform=_reduced_namespace)
        self._local: Informer[Pod] = manager.informer(_PODS, field_selector=f"spec.nodeName={node}")
        self._admitted: dict[str, tuple[str, tuple[str, ...]]] = {}
        """Keys and addresses of Pods of the node by uid; the addresses are known before the status has them."""
        self._changed = asyncio.Event()
        self._known = False
        """Whether the index has every object that existed at some moment after the start."""
        self.ready = asyncio.Event()
        """Set when the rules are in force, or it is known that policies cannot be enforced."""
        self._policies.add_handler(self._policy_changed)
        self._pods.add_handler(self._pod_changed)
        self._namespaces.add_handler(self._namespace_changed)
        self._local.add_handler(self._local_pod_changed)

    async def run(self) -> None:
        """Enforce policies until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            await self._wait_for_access()
            tasks.create_task(self._policies.run())
            await self._policies.synced.wait()
            while not self._policies.items:
                await self._update()
                await self._next_change()
            tasks.create_task(self._pods.run())
            tasks.create_task(self._namespaces.run())
            for informer in (self._pods, self._namespaces):
                await informer.synced.wait()
            while True:
                await self._update()
                await self._next_change()

    async def admit(self, pod: Pod, addresses: Sequence[str]) -> None:
        """Put the rules for a Pod of this node in force. Call this when its sandbox has addresses, before its
        containers start. If the server does not answer for long, the Pod starts without them."""
        facts = pod_facts(pod, addresses)
        if facts is None:
            return
        self._admitted[pod["metadata"]["uid"]] = (facts.key, facts.addresses)
        try:
            await within(self._clock, _ADMIT_TIMEOUT, self.ready.wait())
        except TimeoutError:
            log.warning("Pod %s starts before its NetworkPolicies are known", facts.key)
            return
        self._index.set_pod(facts.key, facts)
        if facts in isolated_pods(self._index):
            with suppress(NftError):  # The table tries again.
                await self._table.update(self._section)

    def release(self, uid: str) -> None:
        """Forget the addresses of a Pod whose sandbox is gone. Until it has another one, those of its status count."""
        key, _ = self._admitted.pop(uid, ("", ()))
        # A new Pod may have the name of one whose sandbox has just ended.
        if key and all(key != other for other, _ in self._admitted.values()):
            known = self._pods.get(key)
            if self._index.set_pod(key, pod_facts(known) if known is not None else None):
                self._changed.set()

    # -- the table -----------------------------------------------------------------------------------------------------

    def _desired(self) -> Fragment | None:
        return self._rules.state() if self._known else None

    async def _update(self) -> None:
        self._known = True
        try:
            await self._table.update(self._section)
        except NftError as error:
            log.error("cannot enforce NetworkPolicies: %s", error)
        self.ready.set()

    async def _next_change(self) -> None:
        await self._changed.wait()
        await self._clock.sleep(_COALESCE)
        self._changed.clear()

    async def _wait_for_access(self) -> None:
        """Return when the server lets the node list the objects. Without this check, a node that is not allowed to do
        so would wait for them, and with it all parts of its table."""
        refused = False
        while True:
            try:
                for resource in (_POLICIES, _PODS, _NAMESPACES):
                    await self._client.list_page(resource, limit=1)
                return
            except Forbidden as error:
                if not refused:
                    log.error("NetworkPolicies are not enforced on this node: %s", error)
                refused = True
                await self._update()
            except (ApiError, Unreachable) as error:
                log.debug("waiting for NetworkPolicies: %s", error)
            await self._clock.sleep(_ACCESS_RETRY if refused else 0.5)

    # -- objects -------------------------------------------------------------------------------------------------------

    def _policy_changed(self, old: Obj | None, new: Obj | None) -> None:
        key = _key(new or old)
        if old is not None and new is not None and old.get("spec") == new.get("spec"):
            return
        self._index.set_policy(key, parse_policy(new) if new is not None else None)
        self._changed.set()

    def _namespace_changed(self, old: Obj | None, new: Obj | None) -> None:
        meta = (new or old or {})["metadata"]
        self._index.set_namespace(meta["name"], (meta.get("labels") or {}) if new is not None else None)
        self._changed.set()

    def _pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        facts = None
        if new is not None:
            _, addresses = self._admitted.get(new["metadata"]["uid"], ("", None))
            facts = pod_facts(new, addresses)
        if self._index.set_pod(_key(new or old), facts):
            self._changed.set()

    def _local_pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None and old is not None:
            self.release(old["metadata"]["uid"])


def _key(obj: Any) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}"


def _reduced_meta(obj: Obj) -> Obj:
    meta = obj["metadata"]
    return {each: meta[each] for each in ("name", "namespace", "uid", "resourceVersion", "labels") if each in meta}


def _reduced_namespace(namespace: Obj) -> Obj:
    return {"metadata": _reduced_meta(namespace)}


def _reduced_pod(pod: Obj) -> Obj:
    """Return the fields of a Pod that policies need, because the cache holds all Pods of the cluster."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    kept: Obj = {each: spec[each] for each in ("hostNetwork", "nodeName") if each in spec}
    for each in ("initContainers", "containers"):
        containers = [_reduced_container(container) for container in spec.get(each) or () if container.get("ports")]
        if containers:
            kept[each] = containers
    return {
        "metadata": _reduced_meta(pod),
        "spec": kept,
        "status": {each: status[each] for each in ("phase", "podIP", "podIPs") if each in status},
    }


def _reduced_container(container: Obj) -> Obj:
    return {each: container[each] for each in ("restartPolicy", "ports") if each in container}
