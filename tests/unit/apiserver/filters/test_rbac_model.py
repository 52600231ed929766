"""Random roles, bindings and requests: RBAC is compared with a model.

The model shares nothing with the implementation: it checks every binding, subject and rule for every request. Roles and
bindings change between requests, so that stale cached answers are detected.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import NamedTuple

import orjson
import pytest

from setpoint.apiserver.filters.authorize import Access, Decision
from setpoint.apiserver.filters.rbac import Policy, RbacAuthorizer
from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.objects import Obj
from setpoint.store.interface import Delete, Put
from setpoint.store.memory import MemoryStore

GROUP = "rbac.authorization.k8s.io"
NAMESPACES = ("", "a", "b")
NAMES = ("r1", "r2", "r3")
ACCOUNT = "system:serviceaccount:a:robot"

# -- the model --------------------------------------------------------------------------------------------------------


def is_meant(subject: Obj, user: UserInfo, namespace: str) -> bool:
    if subject["kind"] == "User":
        return bool(subject["name"] == user.name)
    if subject["kind"] == "Group":
        return subject["name"] in user.groups
    home = subject.get("namespace") or namespace
    return home != "" and user.name == "system:serviceaccount:" + home + ":" + subject["name"]


def any_of(allowed: list[str], wanted: str) -> bool:
    return "*" in allowed or wanted in allowed


def path_matches(pattern: str, path: str) -> bool:
    while pattern.endswith("**"):
        pattern = pattern[:-1]
    return path == pattern or (pattern.endswith("*") and path[: len(pattern) - 1] == pattern[:-1])


def rule_allows(rule: Obj, access: Access) -> bool:
    if not any_of(rule["verbs"], access.verb):
        return False
    if access.path is not None:
        return any(path_matches(pattern, access.path) for pattern in rule.get("nonResourceURLs", []))
    if not any_of(rule.get("apiGroups", []), access.group):
        return False
    spellings = ["*"]
    if access.subresource:
        spellings += [f"{access.resource}/{access.subresource}", f"*/{access.subresource}"]
    else:
        spellings += [access.resource]
    if not any(spelling in rule.get("resources", []) for spelling in spellings):
        return False
    return not rule.get("resourceNames") or access.name in rule["resourceNames"]


class Change(NamedTuple):
    plural: str
    namespace: str
    name: str
    obj: Obj | None


def expected(world: dict[tuple[str, str, str], Obj], access: Access) -> bool:
    asked_in = "" if access.path is not None else access.namespace
    for (plural, namespace, _), binding in world.items():
        if plural not in ("clusterrolebindings", "rolebindings") or namespace not in ("", asked_in):
            continue
        if not any(is_meant(subject, access.user, namespace) for subject in binding["subjects"]):
            continue
        reference = binding["roleRef"]
        kind = "clusterroles" if reference["kind"] == "ClusterRole" else "roles"
        role = world.get((kind, "" if kind == "clusterroles" else namespace, reference["name"]))
        if role is not None and any(rule_allows(rule, access) for rule in role["rules"]):
            return True
    return False


# -- what can happen --------------------------------------------------------------------------------------------------

VERBS = ("get", "list", "create", "*")
RESOURCES = ("pods", "pods/log", "pods/*", "*/log", "secrets", "*")
URLS = ("/healthz", "/healthz/*", "/api*", "/", "*", "/a**")


class Chance(Random):
    """Generates random events."""

    def some(self, *values: str, least: int = 1) -> list[str]:
        return self.sample(values, self.randint(least, 2))

    def rule(self) -> Obj:
        if not self.randrange(3):
            return {"verbs": self.some(*VERBS), "nonResourceURLs": self.some(*URLS)}
        rule: Obj = {
            "verbs": self.some(*VERBS),
            "apiGroups": self.some("", "apps", "*"),
            "resources": self.some(*RESOURCES),
        }
        return rule | {"resourceNames": self.some("x", "y", least=0)} if self.randrange(2) else rule

    def subject(self) -> Obj:
        return self.choice(
            (
                {"kind": "User", "name": self.choice(("ann", "bob", ACCOUNT))},
                {"kind": "Group", "name": self.choice(("devs", "ann"))},
                {"kind": "ServiceAccount", "name": "robot"},
                {"kind": "ServiceAccount", "name": "robot", "namespace": self.choice("ab")},
            )
        )

    def change(self) -> Change:
        plural = self.choice(("clusterroles", "roles", "clusterrolebindings", "rolebindings"))
        namespace = "" if plural.startswith("cluster") else self.choice(NAMESPACES[1:])
        obj: Obj | None = None
        if self.randrange(8):
            kind = "ClusterRole" if not namespace else self.choice(("ClusterRole", "Role"))
            obj = (
                {"rules": [self.rule() for _ in range(self.randint(0, 4))]}
                if plural.endswith("roles")
                else {
                    "roleRef": {"kind": kind, "name": self.choice(NAMES)},
                    "subjects": [self.subject() for _ in range(self.randint(0, 4))],
                }
            )
        return Change(plural, namespace, self.choice(NAMES), obj)

    def access(self) -> Access:
        user = UserInfo(
            self.choice(("ann", "bob", "devs", ACCOUNT, "system:serviceaccount:b:robot")),
            groups=self.choice(((), ("devs",), ("devs", "ann"))),
        )
        verb = self.choice(VERBS[:3])
        if not self.randrange(4):
            return Access(user, verb, path=self.choice(("/healthz", "/healthz/x", "/api", "/apis/v1", "/", "/a")))
        return Access(
            user,
            verb,
            self.choice(("", "apps", "batch")),
            "v1",
            self.choice(("pods", "secrets")),
            self.choice(("", "", "log", "exec")),
            self.choice(NAMESPACES),
            self.choice(("", "x", "z")),
        )


@pytest.mark.parametrize("seed", range(4))
async def test_rbac_agrees_with_the_model(seed: int) -> None:
    chance, store = Chance(seed), MemoryStore()
    caches = {}
    for plural in ("clusterroles", "roles", "clusterrolebindings", "rolebindings"):
        prefix = f"{GROUP}/{plural}/"
        caches[prefix] = ResourceCache(prefix, store, not plural.startswith("cluster"))
        await caches[prefix].start()
    authorizer = RbacAuthorizer(Policy(caches))
    world: dict[tuple[str, str, str], Obj] = {}
    decisions: Counter[Decision] = Counter()
    asked: deque[Access] = deque(maxlen=20)
    for _ in range(250):
        await write(store, world, chance.change())
        # New ones, and some that were answered before the change.
        asked.extend(chance.access() for _ in range(5))
        for access in asked:
            decision, reason = authorizer.authorize(access)
            decisions[decision] += 1
            assert (decision is Decision.ALLOW) == expected(world, access), (access, world)
            assert reason.startswith("RBAC: allowed by ") == (decision is Decision.ALLOW)
    assert min(decisions[Decision.ALLOW], decisions[Decision.NO_OPINION]) > 500, "both are to be judged"
    for cache in caches.values():
        cache.stop()


async def write(store: MemoryStore, world: dict[tuple[str, str, str], Obj], change: Change) -> None:
    plural, namespace, name, obj = change
    key = f"{GROUP}/{plural}/{namespace}/{name}" if namespace else f"{GROUP}/{plural}/{name}"
    if obj is None:
        world.pop((plural, namespace, name), None)
        await store.txn([Delete(key)])
        return
    world[(plural, namespace, name)] = obj
    meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
    value = orjson.dumps({"metadata": {**meta, "uid": "u", "resourceVersion": ""}, **obj})
    await store.txn([Put(key, value, stamp=value.index(b'"resourceVersion":"') + len(b'"resourceVersion":"'))])
