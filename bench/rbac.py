"""What it costs to decide whether a request is allowed, in microseconds of CPU: with upstream's roles, 1,000 bindings
of one namespace each, and a node with 110 Pods. `anew` is the first request of its kind after a role or binding has
changed."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.bootstrap import bootstrap
from setpoint.apiserver.filters.authenticate import AuthenticatorChain
from setpoint.apiserver.filters.authorize import Access
from setpoint.apiserver.filters.rbac import RbacAuthorizer
from setpoint.apiserver.internal_writes import ensure
from setpoint.apiserver.server import ApiServer
from setpoint.cluster.config import NO_DATA_DIR, ApiServerConfig
from setpoint.cluster.wiring import build_server
from setpoint.kinds.strategy import UserInfo
from setpoint.store.memory import MemoryStore
from setpoint.system import RandomIds, SystemClock

EVERYBODY = "system:authenticated"
NODE = UserInfo("system:node:n1", groups=("system:nodes", EVERYBODY))
ACCOUNTS = ("system:serviceaccounts", "system:serviceaccounts:kube-system", EVERYBODY)
DEPLOYMENTS = UserInfo("system:serviceaccount:kube-system:deployment-controller", groups=ACCOUNTS)
DEVELOPER = UserInfo("dev-500", groups=("developers", "team-7", EVERYBODY))
BINDINGS, PODS = 1000, 110
RBAC = "rbac.authorization.k8s.io"

CASES = {
    "administrator": Access(UserInfo("a", groups=("system:masters",)), "get", "", "v1", "pods", "", "default", "p"),
    "controller": Access(DEPLOYMENTS, "update", "apps", "v1", "replicasets", "", "default", "r"),
    "user with one binding": Access(DEVELOPER, "get", "", "v1", "pods", "", "team-500", "p"),
    "user who may not": Access(DEVELOPER, "get", "", "v1", "secrets", "", "kube-system", "s"),
    "path": Access(DEVELOPER, "get", path="/healthz"),
    "node: status of a Pod": Access(NODE, "patch", "", "v1", "pods", "status", "default", "p"),
    "node: its Lease": Access(NODE, "update", "coordination.k8s.io", "v1", "leases", "", "kube-node-lease", "n1"),
    "node: Secret of its last Pod": Access(NODE, "get", "", "v1", "secrets", "", "default", f"secret-{PODS - 1}"),
}


async def server() -> ApiServer:
    resources = ApiResources(MemoryStore(), SystemClock(), RandomIds(1))
    config = ApiServerConfig(
        NO_DATA_DIR, authorization_mode=["Node", "RBAC"], disable_admission_plugins=["ServiceAccount"]
    )
    api = build_server(resources, config, AuthenticatorChain([], True))
    await api.start()
    await bootstrap(resources)
    for number in range(BINDINGS):
        name = f"team-{number}"
        await ensure(resources, "", "namespaces", {"metadata": {"name": name}})
        reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"}
        subjects = [{"apiGroup": RBAC, "kind": "User", "name": f"dev-{number}"}]
        binding = {"metadata": {"name": "dev", "namespace": name}, "roleRef": reference, "subjects": subjects}
        await ensure(resources, RBAC, "rolebindings", binding)
    for number in range(PODS):
        spec = {
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "secret": {"secretName": f"secret-{number}"}}],
        }
        await ensure(resources, "", "pods", {"metadata": {"name": f"p-{number}", "namespace": "default"}, "spec": spec})
    return api


def cost(count: int, do: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        for _ in range(count):
            do()
        best = min(best, (time.process_time() - began) / count * 1e6)
    return best


async def main(count: int) -> None:
    api = await server()
    authorizer = api.parts.authorizer
    remembered = next(each for each in authorizer._authorizers if isinstance(each, RbacAuthorizer))._policy.answers
    print(f"{'us of CPU each':32}{'again':>8}{'anew':>8}")
    for name, access in CASES.items():
        authorizer.authorize(access)

        def once_more(access: Access = access) -> None:
            authorizer.authorize(access)

        def anew(access: Access = access) -> None:
            remembered.clear()
            authorizer.authorize(access)

        print(f"{name:32}{cost(count, once_more):8.1f}{cost(count // 20, anew):8.1f}")
    await api.stop()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
