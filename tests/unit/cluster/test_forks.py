"""Forks: logical clusters below a path of the server, live or in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import orjson
import pytest

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.filters.authenticate import authenticated_peer
from setpoint.apiserver.history.reader import HistoryReader
from setpoint.apiserver.history.when import Moments
from setpoint.apiserver.request_context import RequestContext, parse_path, parse_query, verb_of
from setpoint.cluster.copy_source import CopySource
from setpoint.cluster.fork_endpoints import ForkEndpoints
from setpoint.cluster.fork_options import ForkLimits
from setpoint.cluster.forks import Forks
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import ApiError, ServiceUnavailable
from setpoint.meta.times import format_time
from setpoint.store.quota import StoreQuota
from setpoint.system import RandomIds
from setpoint.testing import VirtualCluster, virtual
from setpoint.wire.message import Request, Response

ADMIN = UserInfo("kubernetes-admin", groups=("system:masters", "system:authenticated"))
BOB = UserInfo("bob", groups=("system:authenticated",))
OUTER = authenticated_peer(UserInfo("outer"), "10.0.0.7", "10.0.0.7")
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def deployment(name: str, replicas: int = 2) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "nginx"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


class Server:
    """Requests to the paths of forks, as the server passes them on after authentication and authorization."""

    def __init__(self, forks: Forks, cluster: VirtualCluster) -> None:
        self.forks = forks
        self._clock = cluster.clock

    async def __call__(self, method: str, path: str, body: Any = None, user: UserInfo = ADMIN) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        data = b"" if body is None else orjson.dumps(body)
        headers = {"content-type": "application/json", "impersonate-user": "system:admin", "authorization": "Bearer x"}
        if method == "PATCH":
            headers["content-type"] = "application/merge-patch+json"
        request = Request(method, path, query, headers, data, OUTER)
        target, parsed = parse_path(path), parse_query(query)
        ctx = RequestContext(request, target, parsed, verb_of(method, target, parsed), user, self._clock.now())
        handler = self.forks.answer if path.startswith("/forks/") else self.forks.manage
        try:
            answer = await handler(ctx)
        except ApiError as error:
            return error.code, error.message
        assert isinstance(answer, Response)
        content = answer.whole_body
        return answer.status, orjson.loads(content) if content.startswith(b"{") else content.decode()


@asynccontextmanager
async def serving(cluster: VirtualCluster, limits: ForkLimits | None = None) -> AsyncIterator[Server]:
    store = cluster.embedded.store
    moments = Moments(HistoryReader(store), dict)
    async with asyncio.TaskGroup() as tasks:
        forks = Forks(CopySource(store, moments), cluster.clock, RandomIds(5), tasks, limits)
        yield Server(forks, cluster)
        for name in [*forks.names()]:
            await forks.remove(name)


async def ready(server: Server, fork: str, name: str = "web") -> int:
    _, found = await server("GET", f"/forks/{fork}{DEPLOYMENTS}/{name}")
    return int(found["status"].get("readyReplicas", 0))


@virtual(nodes=2)
async def test_a_live_fork(cluster: VirtualCluster) -> None:
    """It begins with the state now or then, goes its own way, and authorizes by its own roles."""
    await cluster.client.create(deployment("web"))
    await cluster.settle()
    then = cluster.embedded.store.revision
    await cluster.client.patch(("apps/v1", "Deployment"), "web", {"spec": {"replicas": 3}}, "default")
    await cluster.settle()
    fingerprint = cluster.fingerprint()
    async with serving(cluster) as server:
        status, made = await server("POST", "/setpoint/v1/forks", {"name": "try"})
        assert (status, made["path"], made["state"], made["virtual"]) == (201, "/forks/try", "ready", False)
        status, past = await server("POST", "/setpoint/v1/forks", {"at": str(then)})
        assert (status, past["name"], past["branchedAt"]) == (201, "fork-1", then)
        assert (await ready(server, "try"), await ready(server, "fork-1")) == (3, 2)
        status, patched = await server("PATCH", f"/forks/try{DEPLOYMENTS}/web", {"spec": {"replicas": 5}})
        assert status == 200
        causes = f"/forks/try/setpoint/v1/causes?revisions={patched['metadata']['resourceVersion']}"
        _, found = await server("GET", causes)
        assert (found["causes"][0]["user"], found["causes"][0]["address"]) == ("kubernetes-admin", "10.0.0.7")
        await cluster.client.delete(("apps/v1", "Deployment"), "web", "default")
        await cluster.sleep(20)
        assert await ready(server, "try") == 5, "its loops run in real time"
        _, pods = await server("GET", "/forks/try/api/v1/pods?limit=500")
        assert {each["spec"]["nodeName"] for each in pods["items"]} == {"node-1", "node-2"}
        assert (await cluster.all(("v1", "Pod"))) == []

        code, message = await server("GET", f"/forks/try{DEPLOYMENTS}", user=BOB)
        assert (code, message["message"]) == (
            403,
            'deployments.apps is forbidden: User "bob" cannot list resource "deployments" in API group "apps" in the '
            'namespace "default"',
        ), "the user is the one of the outer request, whatever its headers ask for"
        binding = {
            "metadata": {"name": "bob"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
        }
        await server("POST", "/forks/try/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        assert (await server("GET", f"/forks/try{DEPLOYMENTS}", user=BOB))[0] == 200
        assert (await server("GET", f"/forks/fork-1{DEPLOYMENTS}", user=BOB))[0] == 403

        _, listed = await server("GET", "/setpoint/v1/forks")
        assert [each["name"] for each in listed["forks"]] == ["try", "fork-1"]
        assert await server("DELETE", "/setpoint/v1/forks/try") == (200, {"removed": "try"})
        assert (await server("GET", "/forks/try/api/v1/pods"))[0] == 404
    assert fingerprint != cluster.fingerprint()


@virtual(nodes=2)
async def test_a_virtual_fork(cluster: VirtualCluster) -> None:
    """Time stands still in it until it is advanced."""
    await cluster.client.create(deployment("web"))
    await cluster.settle()
    async with serving(cluster) as server:
        hour = format_time(cluster.clock.now() + timedelta(hours=1))
        _, made = await server("POST", "/setpoint/v1/forks", {"name": "later", "virtual": True, "advance": 3600})
        assert made["now"] == hour
        await server("PATCH", f"/forks/later{DEPLOYMENTS}/web", {"spec": {"replicas": 4}})
        await cluster.sleep(60)
        assert await ready(server, "later") == 2, "nothing runs"
        assert (await server("GET", "/setpoint/v1/forks/later"))[1]["now"] == made["now"]
        began = cluster.clock.monotonic()
        _, settled = await server("POST", "/setpoint/v1/forks/later", {"until": "settled"})
        assert (settled["settled"], settled["writes"] > 10, await ready(server, "later")) == (True, True, 4)
        assert cluster.clock.monotonic() == began, "no time passes outside"


@virtual(nodes=1)
async def test_limits_and_errors(cluster: VirtualCluster) -> None:
    async with serving(cluster) as server:

        async def refused(method: str, path: str, body: Any = None) -> tuple[int, str]:
            code, message = await server(method, path, body)
            return code, str(message)

        manage = "/setpoint/v1/forks"
        assert (await refused("POST", manage, {"name": "Bad_Name"}))[0] == 400
        assert await refused("POST", manage, {"nam": "x"}) == (
            400,
            "unknown field nam; known are name, virtual, advance, until, faults, empty, at",
        )
        assert await refused("POST", manage, {"virtual": 1}) == (400, "virtual has the wrong type")
        assert (await refused("POST", manage, {"at": "999999"}))[0] == 400
        assert (await refused("PUT", manage))[0] == 405
        assert (await refused("GET", "/forks/none/api"))[0] == 404
        await server.forks.create("one", virtual=True)
        pods = "/api/v1/namespaces/default/pods"
        for path in ("//", "/../", "/%2e%2e/", "/one/../", "/one/%2e%2e/", "/one//", "/one/forks/one/"):
            assert (await refused("GET", f"/forks{path}{pods[1:]}"))[0] in (301, 400, 404), path
        for path in (f"{pods}/none/exec", f"{pods}/none/proxy/", "/api/v1/nodes/none/proxy/"):
            assert (await refused("GET", f"/forks/one{path}"))[0] in (400, 404), path
        assert await refused("POST", manage, {"name": "one"}) == (409, "there is a fork one already")
        for body in ({}, {"advance": 1, "until": "settled"}, {"until": "never"}, {"advance": -1}, {"advance": 1e12}):
            assert (await refused("POST", f"{manage}/one", body))[0] == 400
        for number in range(ForkLimits().most - 1):
            await server.forks.create(f"more-{number}", virtual=True)
        assert await refused("POST", manage, {"name": "many"}) == (403, "there are 8 forks already; remove one first")


@virtual(nodes=1)
async def test_an_empty_fork(cluster: VirtualCluster) -> None:
    """It is a new cluster with objects of its own, at a pace that people can follow, and begins again on request."""
    await cluster.client.create(deployment("outside"))
    async with serving(cluster) as server:
        manage, path = "/setpoint/v1/forks", f"/forks/lesson-1{DEPLOYMENTS}"
        wanted = {"name": "lesson-1", "empty": True, "nodes": 2, "pace": "learning", "apply": [deployment("web")]}
        status, made = await server("POST", manage, wanted)
        assert (status, made["empty"], made["components"]) == (201, True, {"controllers": True, "scheduler": True})
        _, found = await server("GET", path)
        assert [each["metadata"]["name"] for each in found["items"]] == ["web"]
        _, nodes = await server("GET", "/forks/lesson-1/api/v1/nodes")
        assert len(nodes["items"]) == 2
        assert await ready(server, "lesson-1") == 2, "the start state has settled"

        await server("PATCH", f"{path}/web", {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}})
        await cluster.sleep(2)
        _, pods = await server("GET", "/forks/lesson-1/api/v1/pods")
        assert "Pending" in [each["status"]["phase"] for each in pods["items"]], "a start takes seconds"
        await server("DELETE", f"{path}/web")
        _, reset = await server("POST", f"{manage}/lesson-1", {"reset": True})
        assert (reset["state"], await ready(server, "lesson-1")) == ("ready", 2)
        _, web = await server("GET", f"{path}/web")
        assert "terminationGracePeriodSeconds: 7" not in str(web["spec"])

        for _ in range(3):
            assert (await server("POST", f"{manage}/lesson-1", {"sleepAfter": 30}))[0] == 200
        await cluster.sleep(20)
        await server("GET", path)
        await cluster.sleep(20)
        assert (await server("GET", f"{manage}/lesson-1"))[1]["state"] == "ready", "it was used meanwhile"
        await server("POST", f"{manage}/lesson-1", {"sleepAfter": 30})
        await cluster.sleep(31)
        assert (await server("GET", f"{manage}/lesson-1"))[1]["state"] == "asleep"
        assert await ready(server, "lesson-1") == 2, "a request wakes it"

        _, stopped = await server("POST", f"{manage}/lesson-1", {"component": "controllers", "running": False})
        assert stopped["components"] == {"controllers": False, "scheduler": True}
        await server("DELETE", "/forks/lesson-1/api/v1/namespaces/default/pods")
        await cluster.sleep(30)
        _, pods = await server("GET", "/forks/lesson-1/api/v1/pods")
        assert pods["items"] == []
        await server("POST", f"{manage}/lesson-1", {"component": "controllers", "running": True})
        await cluster.sleep(30)
        assert await ready(server, "lesson-1") == 2, "the controllers act on the state, not on events"


@virtual(nodes=1)
async def test_an_operator_runs_in_a_fork(cluster: VirtualCluster) -> None:
    async with serving(cluster) as server:
        manage = "/setpoint/v1/forks"
        await server("POST", manage, {"name": "lesson-2", "empty": True})
        _, started = await server("POST", f"{manage}/lesson-2", {"operator": "postgres", "running": True})
        assert (started["operators"], started["failures"]) == (["postgres"], {})
        kind = "/forks/lesson-2/apis/database.example.com/v1alpha1/namespaces/default/postgresclusters"
        body = {
            "apiVersion": "database.example.com/v1alpha1",
            "kind": "PostgresCluster",
            "metadata": {"name": "db"},
            "spec": {"engineVersion": "15.3", "replication": {"enabled": True}, "backupSchedule": "0 2 * * *"},
        }
        assert (await server("POST", kind, body))[0] == 201
        await cluster.sleep(60)
        _, db = await server("GET", f"{kind}/db")
        assert (db["status"]["ready"], db["status"]["observedGeneration"]) == ("2/2", 1)
        _, jobs = await server("GET", "/forks/lesson-2/apis/batch/v1/namespaces/default/cronjobs")
        assert [each["metadata"]["name"] for each in jobs["items"]] == ["db-backup"]
        _, stopped = await server("POST", f"{manage}/lesson-2", {"operator": "postgres", "running": False})
        assert stopped["operators"] == []
        service = "/forks/lesson-2/api/v1/namespaces/default/services/db"
        assert (await server("DELETE", service))[0] == 200
        await cluster.sleep(30)
        assert (await server("GET", service))[0] == 404, "no loop acts for it"
        await server("POST", f"{manage}/lesson-2", {"operator": "postgres", "running": True})
        await cluster.sleep(5)
        assert (await server("GET", service))[0] == 200


@virtual(nodes=1)
async def test_a_fork_sleeps_until_it_is_used(cluster: VirtualCluster) -> None:
    """It keeps objects and history, does not age, and what was stopped or started in it stays so."""
    async with serving(cluster) as server:
        manage = "/setpoint/v1/forks"
        await server("POST", manage, {"name": "seat", "empty": True, "nodes": 1, "apply": [deployment("web")]})
        await server("POST", f"{manage}/seat", {"operator": "postgres", "running": True})
        await server("POST", f"{manage}/seat", {"component": "scheduler", "running": False})
        await server("PATCH", f"/forks/seat{DEPLOYMENTS}/web", {"spec": {"replicas": 3}})
        await cluster.sleep(20)
        _, before = await server("GET", "/forks/seat/setpoint/v1/writes?limit=500")
        await server.forks.sleep(server.forks.find("seat"))
        await server.forks.sleep(server.forks.find("seat"))
        _, asleep = await server("GET", f"{manage}/seat")
        assert (asleep["state"], asleep["components"]) == ("asleep", {"controllers": False, "scheduler": False})
        await cluster.sleep(3600)
        assert (await server("GET", f"{manage}/seat"))[1]["now"] == asleep["now"]

        assert await ready(server, "seat") == 2, "the third Pod has no node, because the scheduler was stopped"
        _, awake = await server("GET", f"{manage}/seat")
        assert (awake["state"], awake["now"], awake["operators"]) == ("ready", asleep["now"], ["postgres"])
        assert awake["components"] == {"controllers": True, "scheduler": False}
        _, after = await server("GET", "/forks/seat/setpoint/v1/writes?limit=500")
        assert after["writes"][: len(before["writes"])] == before["writes"]
        await server("POST", f"{manage}/seat", {"component": "scheduler", "running": True})
        await cluster.sleep(20)
        assert await ready(server, "seat") == 3

        await server.forks.sleep(server.forks.find("seat"))
        _, reset = await server("POST", f"{manage}/seat", {"reset": True})
        assert (reset["state"], reset["operators"], await ready(server, "seat")) == ("ready", [], 2)


@virtual(nodes=1)
async def test_a_fork_keeps_its_quota(cluster: VirtualCluster) -> None:
    """Controllers are refused as users are, and what frees space is not."""
    quota = StoreQuota(4 << 20, 1_000, {"core/pods/": (5, "Pods"), "core/events/": (50, "Events")})
    async with serving(cluster, ForkLimits(quota=quota, isolated=True)) as server:
        await server("POST", "/setpoint/v1/forks", {"name": "seat", "empty": True, "apply": [deployment("web", 20)]})
        await cluster.sleep(60)
        _, pods = await server("GET", "/forks/seat/api/v1/pods?limit=500")
        assert len(pods["items"]) == 20, "the start state is the server's own"
        await server("DELETE", "/forks/seat/api/v1/namespaces/default/pods")
        await cluster.sleep(60)
        _, pods = await server("GET", "/forks/seat/api/v1/pods?limit=500")
        assert len(pods["items"]) == 5
        pod = {"metadata": {"name": "more"}, "spec": {"containers": [{"name": "a", "image": "nginx"}]}}
        code, refusal = await server("POST", "/forks/seat/api/v1/namespaces/default/pods", pod)
        assert (code, refusal["message"]) == (403, "this cluster may have at most 5 Pods")
        data = {"metadata": {"name": "big"}, "data": {"a": "x" * 900_000}}
        codes = []
        for number in range(6):
            data["metadata"] = {"name": f"big-{number}"}
            codes.append((await server("POST", "/forks/seat/api/v1/namespaces/default/configmaps", data))[0])
        assert (codes[0], codes[-1]) == (201, 403)
        assert (await server("DELETE", "/forks/seat/api/v1/namespaces/default/configmaps/big-0"))[0] == 200
        assert (await server("POST", "/forks/seat/api/v1/namespaces/default/configmaps", data))[0] == 201

        hook = {
            "metadata": {"name": "out"},
            "webhooks": [
                {
                    "name": "out.example.com",
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "clientConfig": {"url": "https://127.0.0.1:1/"},
                    "rules": [
                        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}
                    ],
                }
            ],
        }
        path = "/forks/seat/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        assert (await server("POST", path, hook))[0] == 201
        secret = {"metadata": {"name": "s"}}
        code, refusal = await server("POST", "/forks/seat/api/v1/namespaces/default/secrets", secret)
        assert code == 500 and "this server does not call others" in refusal["message"]


@virtual(nodes=1)
async def test_what_an_empty_fork_refuses(cluster: VirtualCluster) -> None:
    async with serving(cluster) as server:

        async def refused(body: Any, path: str = "") -> str:
            code, message = await server("POST", f"/setpoint/v1/forks{path}", body)
            assert code in (400, 403), message
            return str(message)

        assert await refused({"empty": True, "nodes": 101}) == "nodes must be a number from 0 to 100"
        assert await refused({"empty": True, "pace": "warp"}) == "pace must be one of real, fast, instant, learning"
        assert await refused({"empty": True, "at": "-5m"}) == (
            "unknown field at; known are name, virtual, advance, until, faults, empty, nodes, pace, apply"
        )
        assert await refused({"empty": True, "apply": [1]}) == "apply must be a list of at most 200 objects"
        assert await refused({"empty": True, "apply": [{}]}) == "apply: each object needs apiVersion and kind"
        wrong = deployment("web") | {"spec": {}}
        assert "Deployment web: " in await refused({"empty": True, "apply": [wrong]})
        await server.forks.create("one")
        assert "operator must be one of postgres" in await refused({"operator": "evil", "running": True}, "/one")
        assert "component must be one of" in await refused({"component": "fleet", "running": True}, "/one")
        assert "whether it is" in await refused({"component": "scheduler"}, "/one")
        assert "sleepAfter must be a number" in await refused({"sleepAfter": 1e9}, "/one")


def test_there_are_no_forks_before_the_server_runs() -> None:
    resources: Any = object.__new__(ApiResources)
    handler = ForkEndpoints(resources).paths["/forks/"]
    ctx: Any = None

    async def request() -> None:
        await handler(ctx)

    with pytest.raises(ServiceUnavailable):
        asyncio.run(request())
