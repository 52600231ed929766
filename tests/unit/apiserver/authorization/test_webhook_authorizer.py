"""Authorization by a webhook, through the API, and the AuthorizationConfiguration file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from server_harness import LIMITED_TOKEN, ServerHarness
from token_issuer import Network

from setpoint.apiserver.remote_servers import RemoteServer, RemoteServerError
from setpoint.cluster.config import AccessConfig, ConfigError
from setpoint.meta.body import dump_yaml
from setpoint.meta.objects import Obj
from setpoint.wire.message import Request, Response

PODS = "/api/v1/namespaces/default/pods"


def kubeconfig(path: Path, host: str = "hook.example") -> str:
    content = {
        "current-context": "hook",
        "contexts": [{"name": "hook", "context": {"cluster": "hook"}}],
        "clusters": [{"name": "hook", "cluster": {"server": f"https://{host}/authorize"}}],
    }
    path.write_bytes(orjson.dumps(content))
    return str(path)


class Hook:
    def __init__(self, network: Network, host: str = "hook.example") -> None:
        self.status: Obj = {}
        self.silent = False
        self.asked: list[Obj] = []
        self.versions: list[str] = []
        network.hosts[host] = self.answer

    def answer(self, server: RemoteServer, request: Request) -> Response:
        review = orjson.loads(request.body)
        self.asked.append(review["spec"])
        self.versions.append(review["apiVersion"])
        if self.silent:
            raise RemoteServerError("context deadline exceeded")
        return Response(200, orjson.dumps(review | {"status": self.status}))


def opened(network: Network, access: AccessConfig, modes: list[str]) -> AbstractAsyncContextManager[ServerHarness]:
    return ServerHarness.running(servers=network, access=access, modes=modes)


@asynccontextmanager
async def flagged(tmp_path: Path, *modes: str, **more: Any) -> AsyncIterator[tuple[ServerHarness, Hook]]:
    network = Network()
    hook = Hook(network)
    access = AccessConfig(authorization_webhook_config_file=kubeconfig(tmp_path / "hook.json"), **more)
    async with opened(network, access, list(modes) or ["Webhook"]) as harness:
        yield harness, hook


async def status(harness: ServerHarness, path: str = PODS) -> int:
    return (await harness.get(path, token=LIMITED_TOKEN)).status


async def test_the_subject_access_review(tmp_path: Path) -> None:
    async with flagged(tmp_path, authorization_webhook_version="v1") as (harness, hook):
        hook.status = {"allowed": True}
        user = {"user": "limited", "uid": "limited-uid", "groups": ["some-group", "system:authenticated"]}
        assert await status(harness, f"{PODS}?fieldSelector=spec.nodeName%3Dn1&labelSelector=a%20in%20(b,c),!d") == 200
        requirements = [{"key": "a", "operator": "In", "values": ["b", "c"]}, {"key": "d", "operator": "DoesNotExist"}]
        attributes = {
            "namespace": "default",
            "verb": "list",
            "version": "v1",
            "resource": "pods",
            "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]},
            "labelSelector": {"requirements": requirements},
        }
        assert hook.asked == [{"resourceAttributes": attributes, **user}]
        assert await status(harness, "/version") == 200
        assert hook.asked[1] == {"nonResourceAttributes": {"path": "/version", "verb": "get"}, **user}
        assert set(hook.versions) == {"authorization.k8s.io/v1"}


async def test_allowing_answers_are_cached_longer(tmp_path: Path) -> None:
    async with flagged(tmp_path) as (harness, hook):
        hook.status = {"allowed": True}
        assert [await status(harness) for _ in range(3)] == [200] * 3
        assert len(hook.asked) == 1
        hook.status = {"allowed": False, "reason": "not you"}
        await harness.clock.advance(299)
        assert await status(harness) == 200
        await harness.clock.advance(2)
        reply = await harness.get(PODS, token=LIMITED_TOKEN)
        assert reply.message.endswith('in the namespace "default": default: not you')
        hook.status = {"allowed": True}
        assert await status(harness) == 403
        await harness.clock.advance(31)
        assert await status(harness) == 200


async def test_administrators_and_health_need_no_webhook(tmp_path: Path) -> None:
    async with flagged(tmp_path) as (harness, hook):
        assert (await harness.get(PODS)).status == 200
        assert hook.asked == []


async def test_another_mode_may_allow_after_no_opinion(tmp_path: Path) -> None:
    async with flagged(tmp_path, "Webhook", "AlwaysAllow") as (harness, hook):
        assert await status(harness) == 200
        hook.silent = True
        assert await status(harness, "/api/v1/nodes") == 200
        hook.silent = False
        hook.status = {"denied": True, "reason": "never"}
        reply = await harness.get("/api/v1/secrets", token=LIMITED_TOKEN)
        assert (reply.status, reply.message.endswith("at the cluster scope: never")) == (403, True)


async def test_a_failing_webhook_is_a_server_error(tmp_path: Path) -> None:
    async with flagged(tmp_path) as (harness, hook):
        hook.silent = True
        reply = await harness.get(PODS, token=LIMITED_TOKEN)
        assert reply.status == 500
        assert reply.body == (
            b'Internal Server Error: "/api/v1/namespaces/default/pods": Post '
            b'"https://hook.example/authorize?timeout=30s": context deadline exceeded\n'
        )


async def test_long_requests_are_not_cached(tmp_path: Path) -> None:
    async with flagged(tmp_path) as (harness, hook):
        hook.status = {"allowed": True}
        for _ in range(2):
            await status(harness, f"{PODS}/{'x' * 10_000}")
        assert len(hook.asked) == 2


async def test_rules_cannot_be_listed(tmp_path: Path) -> None:
    async with flagged(tmp_path, "Webhook", "RBAC") as (harness, hook):
        hook.status = {"allowed": True}
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        found = (await harness.post(path, {"spec": {"namespace": "default"}}, token=LIMITED_TOKEN)).json["status"]
        assert found["incomplete"] is True
        assert found["evaluationError"] == "webhook authorizer does not support user rule resolution"


# -- by file ----------------------------------------------------------------------------------------------------------


def webhook(tmp_path: Path, name: str = "far", host: str = "hook.example", **more: Any) -> Obj:
    told = {
        "timeout": "3s",
        "subjectAccessReviewVersion": "v1",
        "matchConditionSubjectAccessReviewVersion": "v1",
        "failurePolicy": "Deny",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig(tmp_path / f"{name}.json", host)},
    }
    return {"type": "Webhook", "name": name, "webhook": told | more}


RBAC = {"type": "RBAC", "name": "rbac"}


def configuration(*authorizers: Obj) -> bytes:
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration"}
    return dump_yaml({**head, "authorizers": list(authorizers)})


@asynccontextmanager
async def configured(tmp_path: Path, *authorizers: Obj) -> AsyncIterator[tuple[ServerHarness, Network, Path]]:
    network, path = Network(), tmp_path / "authorization.yaml"
    path.write_bytes(configuration(*authorizers))
    async with opened(network, AccessConfig(authorization_config=str(path)), []) as harness:
        yield harness, network, path


async def test_the_node_authorizer_restricts_nodes(tmp_path: Path) -> None:
    async with configured(tmp_path, {"type": "Node", "name": "node"}, RBAC) as (harness, _, _):
        assert any(plugin.name == "NodeRestriction" for plugin in harness.api.resources.env.admission.plugins)
    async with configured(tmp_path, RBAC) as (harness, _, _):
        assert not any(plugin.name == "NodeRestriction" for plugin in harness.api.resources.env.admission.plugins)


async def test_several_webhooks_in_order(tmp_path: Path) -> None:
    first, second = webhook(tmp_path, "one", "one.example"), webhook(tmp_path, "two", "two.example")
    async with configured(tmp_path, first, second, RBAC) as (harness, network, _):
        one, two = Hook(network, "one.example"), Hook(network, "two.example")
        two.status = {"allowed": True}
        assert await status(harness) == 200
        assert (len(one.asked), len(two.asked)) == (1, 1)
        two.silent = True
        reply = await harness.get("/api/v1/nodes", token=LIMITED_TOKEN)
        assert reply.body == (
            b'Internal Server Error: "/api/v1/nodes": Post "https://two.example/authorize?timeout=3s": '
            b"context deadline exceeded\n"
        )


async def test_match_conditions(tmp_path: Path) -> None:
    conditions = [
        {"expression": "has(request.resourceAttributes)"},
        {"expression": "request.resourceAttributes.namespace == 'default'"},
        {"expression": "!('system:masters' in request.groups) && request.user != 'x'"},
    ]
    async with configured(tmp_path, webhook(tmp_path, matchConditions=conditions), RBAC) as (harness, network, _):
        hook = Hook(network)
        hook.status = {"allowed": True}
        assert await status(harness) == 200
        assert await status(harness, "/api/v1/nodes") == 403
        assert await status(harness, "/metrics") == 403
        assert len(hook.asked) == 1


async def test_the_failure_policy_decides_on_failing_conditions(tmp_path: Path) -> None:
    conditions = [{"expression": "request.resourceAttributes.namespace == 'default'"}]
    for policy, allowed in (("Deny", 500), ("NoOpinion", 200)):
        hook = webhook(tmp_path, matchConditions=conditions, failurePolicy=policy)
        always = {"type": "AlwaysAllow", "name": "alwaysallow"}
        async with configured(tmp_path, hook, always) as (harness, network, _):
            Hook(network)
            reply = await harness.get("/version", token=LIMITED_TOKEN)
            assert reply.status == allowed
            if policy == "Deny":
                assert reply.body == (
                    b'Internal Server Error: "/version": cel evaluation error: expression '
                    b"'request.resourceAttributes.namespace == 'default'' resulted in error: no such key: "
                    b"resourceAttributes\n"
                )


async def test_disabled_caches(tmp_path: Path) -> None:
    hook = webhook(tmp_path, cacheAuthorizedRequests=False, unauthorizedTTL="1m")
    async with configured(tmp_path, hook, RBAC) as (harness, network, _):
        far = Hook(network)
        far.status = {"allowed": True}
        for _ in range(2):
            await status(harness)
        assert len(far.asked) == 2
        far.status = {}
        for _ in range(2):
            await status(harness)
            await harness.clock.advance(40)
        assert len(far.asked) == 3


async def test_the_file_is_reloaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with configured(tmp_path, RBAC) as (harness, network, path):
        hook = Hook(network)
        hook.status = {"allowed": True}
        assert await status(harness) == 403
        path.write_bytes(configuration(webhook(tmp_path), RBAC))
        await harness.clock.advance(2)
        assert await status(harness) == 200
        for bad, said in (
            (configuration(webhook(tmp_path)), "reloading authorization config: missing required types: [RBAC]"),
            (
                configuration({"type": "Node", "name": "node"}, RBAC),
                "authorizer type Node is not allowed if it was not enabled at initial server startup",
            ),
            (b"x", "failed to load AuthorizationConfiguration from file"),
        ):
            path.write_bytes(bad)
            await harness.clock.advance(2)
            assert said in caplog.text
            assert await status(harness) == 200
        path.write_bytes(configuration(RBAC))
        await harness.clock.advance(2)
        assert await status(harness) == 403


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "authorizers: Required value: at least one authorization mode must be defined"),
        ({"type": ""}, "authorizers[0].type: Required value"),
        (
            {"type": "X"},
            'authorizers[0].type: Unsupported value: "X": supported values: "ABAC", "AlwaysAllow", '
            '"AlwaysDeny", "Node", "RBAC", "Webhook"',
        ),
        ({"type": "RBAC", "name": "x"}, "expected name rbac for authorizer RBAC instead of x"),
        (
            {"type": "RBAC", "name": "rbac", "webhook": {}},
            'authorizers[0].webhook: Invalid value: "non-null": may only be specified when type=Webhook',
        ),
        ({"type": "Webhook", "name": "a"}, "authorizers[0].webhook: Required value: required when type=Webhook"),
        (
            {"name": "a b"},
            'authorizers[0].name: Invalid value: "a b": authorizer name is invalid: a lowercase RFC 1123 '
            "subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'example.com', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
        ({"timeout": "0s"}, "authorizers[0].timeout: Required value"),
        ({"timeout": "31s"}, 'authorizers[0].timeout: Invalid value: "31s": must be > 0s and <= 30s'),
        ({"authorizedTTL": "-1s"}, 'authorizers[0].authorizedTTL: Invalid value: "-1s": must be > 0s'),
        (
            {"subjectAccessReviewVersion": "v2"},
            'authorizers[0].subjectAccessReviewVersion: Unsupported value: "v2": supported values: "v1", "v1beta1"',
        ),
        ({"failurePolicy": ""}, "authorizers[0].failurePolicy: Required value"),
        (
            {"matchConditionSubjectAccessReviewVersion": "", "matchConditions": [{"expression": "true"}]},
            "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are "
            "specified",
        ),
        (
            {"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "x"}},
            'authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "x": must be an absolute path',
        ),
        (
            {"connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/not/there"}},
            'authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "/not/there": error loading file: stat '
            "/not/there: no such file or directory",
        ),
        (
            {"matchConditions": [{"expression": "request.user"}]},
            "authorizers[0].matchConditions[0].expression: Invalid "
            'value: "request.user": must evaluate to bool but got string',
        ),
        ({"matchConditions": [{"expression": " "}]}, "authorizers[0].matchConditions[0].expression: Required value"),
        (
            {"matchConditions": [{"expression": "true"}] * 2},
            'authorizers[0].matchConditions[1].expression: Duplicate value: "true"',
        ),
    ],
)
async def test_invalid_files(tmp_path: Path, change: Obj, message: str) -> None:
    entry = webhook(tmp_path)
    if "type" in change:
        entries = [change]
    elif change:
        entries = [
            {**entry, "name": change["name"]} if "name" in change else {**entry, "webhook": entry["webhook"] | change}
        ]
    else:
        entries = []
    with pytest.raises(ConfigError) as found:
        async with configured(tmp_path, *entries):
            pass
    assert str(found.value) == f"--authorization-config: {message}"
