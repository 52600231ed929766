"""The ClusterRole of an operator allows what it does, and no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from setpoint.client import Impersonation
from setpoint.meta.errors import Forbidden
from setpoint.sdk import Context, Controller, Kind, Object, Operator, ReachedAt, Refers, Validate, is_true
from setpoint.sdk.certificates import shared_pair
from setpoint.sdk.options import parse
from setpoint.sdk.process import print_manifests
from setpoint.system import RandomIds
from setpoint.testing import VirtualCluster, virtual

BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "tea"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tea"},
    "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "tea"}],
}


@dataclass
class TeapotSpec:
    secret: str = ""


Teapot = Kind("example.com/v1", "Teapot", spec=TeapotSpec)
ConfigMap = Kind("v1", "ConfigMap")
Secret = Kind("v1", "Secret")


async def brew(ctx: Context[Any, Any], pot: Object[TeapotSpec, Any]) -> None:
    names = ("a", "b") if pot.spec.secret else ("a",)
    await ctx.apply(*({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in names))
    ctx.condition("Ready", True, "Brewed")
    ctx.event("Brewed", "tea is ready")


async def clean(ctx: Context[Any, Any], pot: Object[TeapotSpec, Any]) -> None: ...


async def check(review: Any, pot: Any) -> None: ...


OPERATOR = Operator(
    "tea",
    Controller(
        Teapot,
        brew,
        owns=(ConfigMap,),
        watches=(Refers(Secret, lambda pot: [pot.spec.secret]),),
        finalizer="example.com/tea",
        finalize=clean,
    ),
    Validate(Teapot, check),
)


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_the_role_is_sufficient(cluster: VirtualCluster) -> None:
    reached = ReachedAt(url="https://tea.webhooks.test")
    own = cluster.client.named("tea", Impersonation("tea"))
    with pytest.raises(Forbidden):
        await OPERATOR.install(own, cluster.clock, reached)
    await cluster.client.create(OPERATOR.role(reached))
    await cluster.client.create(BINDING)
    await shared_pair(own, cluster.clock, "default", "tea-webhook-tls", ("x",))
    await shared_pair(own, cluster.clock, "default", "tea-webhook-tls", ("x", "y"))
    reviewer = OPERATOR.reviewer(own, cluster.clock)
    with cluster.embedded.hosts.serving("tea.webhooks.test", reviewer.answer):
        await OPERATOR.install(own, cluster.clock, reached)
        await OPERATOR.install(own, cluster.clock, reached)
        async with OPERATOR.running(own, cluster.clock, RandomIds(1)):
            pot = {"apiVersion": "example.com/v1", "kind": "Teapot", "metadata": {"name": "x", "namespace": "default"}}
            await cluster.client.create({**pot, "spec": {"secret": "s"}})
            await cluster.sleep(1)
            await cluster.client.patch(Teapot.ref, "x", {"spec": {"secret": ""}}, "default")
            await cluster.sleep(1)
            assert is_true(await cluster.client.get(Teapot.ref, "x", "default"), "Ready")
            names = {each["metadata"]["name"] for each in await cluster.all(ConfigMap.ref)}
            assert names - {"kube-root-ca.crt"} == {"a"}
            assert await cluster.events("x")
            await cluster.client.delete(Teapot.ref, "x", "default")
            await cluster.sleep(1)
            assert await cluster.find(Teapot.ref, "x") is None
    with pytest.raises(Forbidden):
        await own.delete(Secret.ref, "tea-webhook-tls", "default")


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_the_role_is_sufficient_for_leader_election(cluster: VirtualCluster) -> None:
    import asyncio

    await cluster.client.create(OPERATOR.role())
    await cluster.client.create(BINDING)
    await OPERATOR.install(cluster.client, cluster.clock)
    own = cluster.client.named("tea", Impersonation("tea"))
    leading = asyncio.ensure_future(OPERATOR.lead(own, cluster.clock, RandomIds(1), namespace="default", identity="me"))
    await cluster.sleep(5)
    lease = await cluster.client.get(("coordination.k8s.io/v1", "Lease"), "tea", "default")
    assert lease["spec"]["holderIdentity"] == "me"
    leading.cancel()


def test_the_role_is_printed_as_a_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    from setpoint.sdk import manifests

    print_manifests(OPERATOR, parse("tea", ["--print-manifests", "--webhook-service=tea-system/hooks"]))
    documents = list(manifests(capsys.readouterr().out.encode()))
    assert [each["kind"] for each in documents] == [
        "CustomResourceDefinition",
        "ValidatingWebhookConfiguration",
        "ClusterRole",
    ]
    assert documents[1]["webhooks"][0]["clientConfig"]["service"]["name"] == "hooks"
