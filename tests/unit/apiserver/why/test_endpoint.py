"""`GET /setpoint/v1/why`: bad questions, and what the server remembers for answers."""

from __future__ import annotations

import pytest

from setpoint.apiserver.watchers import Watchers, Watching
from setpoint.meta.errors import ApiError
from setpoint.testing import VirtualClock, VirtualCluster, run_virtual, virtual_cluster

BAD = [
    ("resource=pods&name=x", 400, "name must be given, and namespace for a namespaced resource"),
    ("resource=pods&namespace=default", 400, "name must be given, and namespace for a namespaced resource"),
    ("resource=pods&namespace=default&name=a/b", 400, "name and namespace must not contain a slash"),
    ("resource=teapots&namespace=default&name=x", 404, "there is no resource teapots"),
    ("resource=teapots&group=example.com&name=x", 404, "there is no resource teapots.example.com"),
    ("resource=nodes&name=x&depth=0", 400, "depth must be a number from 1 to 100"),
    ("resource=nodes&name=x&depth=9999", 400, "depth must be a number from 1 to 100"),
    ("resource=nodes&name=x&at=nonsense!", 400, "'nonsense!' is not a moment"),
    ("resource=nodes&name=x&since=nonsense!", 400, "'nonsense!' is not a moment"),
    ("resource=nodes&name=x&at=99999999", 400, "revision 99999999 has not happened yet"),
    (f"resource=nodes&name=x&field={'f' * 600}", 400, "field must not be longer than 512 characters"),
    ("resource=nodes&name=x", 404, 'nodes "x" not found'),
]


def test_questions() -> None:
    async def main() -> None:
        async with virtual_cluster(nodes=1) as cluster:
            for query, code, message in BAD:
                with pytest.raises(ApiError) as refused:
                    await cluster.client.sender.request("GET", "/setpoint/v1/why", query)
                assert refused.value.code == code, query
                assert refused.value.message.startswith(message), query
            with pytest.raises(ApiError) as refused:
                await cluster.client.sender.request("POST", "/setpoint/v1/why", BAD[0][0])
            assert refused.value.code == 405
            await viewers_may_ask(cluster)
            await values_of_secrets_are_hidden(cluster)

    run_virtual(main)


async def values_of_secrets_are_hidden(cluster: VirtualCluster) -> None:
    for number, value in enumerate(("aHVudGVy", "c2VjcmV0", "aHVudGVy")):
        applied = {"kubectl.kubernetes.io/last-applied-configuration": f"{value} {number}"}
        meta = {"name": "login", "namespace": "default", "annotations": applied}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"password": value, "user": "YQ=="}}
        await cluster.client.apply(secret, field_manager="test")
    for query in ("field=data.password", "field=data", "field=metadata.annotations&all=true", "conflicts=true", ""):
        where = f"resource=secrets&namespace=default&name=login&{query}"
        body = (await cluster.client.sender.request("GET", "/setpoint/v1/why", where)).body.decode()
        assert "aHVudGVy" not in body and "c2VjcmV0" not in body, body
        if query == "field=data.password":
            assert "data.password of Secret login became <hidden-1> (before: <hidden-4>)" in body


async def viewers_may_ask(cluster: VirtualCluster) -> None:
    """The role view includes the right to ask, once the aggregation has happened."""
    await cluster.settle()
    rules = (await cluster.client.get(("rbac.authorization.k8s.io/v1", "ClusterRole"), "view"))["rules"]
    assert {"verbs": ["get"], "nonResourceURLs": ["/setpoint/v1/why"]} in rules
    await cluster.client.sender.request(
        "GET", "/setpoint/v1/why", "resource=nodes&name=node-1&since=1h&all=true&not=true"
    )


def test_watchers_are_remembered_within_bounds() -> None:
    async def main() -> None:
        clock = VirtualClock()
        watchers = Watchers(clock)
        begin = int(clock.now().timestamp() * 1000)
        with watchers.watching("alice", "tool", "core/pods/"):
            with watchers.watching("alice", "tool", "core/pods/"):
                await clock.sleep(5)
            assert watchers.of_client("alice", "tool", begin + 9_000) == ["core/pods/"]
            assert watchers.of_resource("core/pods/", begin) == [(Watching("alice", "tool", "core/pods/"), 0)]
            assert watchers.of_client("alice", "tool", begin - 1) == []
            assert watchers.of_client("bob", "tool", begin) == []
        assert watchers.of_client("alice", "tool", begin + 5_001) == []
        assert watchers.of_resource("core/pods/", begin + 5_000) == [
            (Watching("alice", "tool", "core/pods/"), begin + 5_000)
        ]
        assert watchers.of_resource("core/pods/", begin + 5_001) == []
        with watchers.watching("open", "tool", "core/nodes/"):
            for number in range(5_000):
                with watchers.watching(f"user-{number}", "tool", "core/pods/"):
                    pass
            assert len(watchers.of_resource("core/pods/", 0)) == 4_095
            assert len(watchers.of_resource("core/nodes/", 0)) == 1

    run_virtual(main)
