"""Webhooks of an operator in virtual time, called by the API server."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from setpoint.meta.errors import ApiError, Forbidden, InternalError, Invalid
from setpoint.meta.exposition import text
from setpoint.meta.objects import Obj
from setpoint.sdk import (
    Context,
    Controller,
    Convert,
    Denied,
    Kind,
    Mutate,
    Object,
    Operator,
    ReachedAt,
    Review,
    Validate,
    Version,
)
from setpoint.testing import Diverged, VirtualCluster, explore, virtual


@dataclass
class TeapotSpec:
    cups: int = 4
    teas: list[str] = field(default_factory=list)


Teapot = Kind("example.com/v1", "Teapot", spec=TeapotSpec)
CONFIGURATIONS = [
    ("admissionregistration.k8s.io/v1", f"{each}WebhookConfiguration") for each in ("Validating", "Mutating")
]


def teapot(name: str = "brown", **spec: Any) -> Obj:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Teapot", "metadata": meta, "spec": spec}


async def check(review: Review[TeapotSpec, Any], pot: Object[TeapotSpec, Any]) -> None:
    if review.operation == "DELETE":
        if "keep" in pot.spec.teas:
            raise Denied("it is still used", code=409, reason="Conflict")
        return
    if pot.spec.cups > 8:
        raise Denied(f"{pot.name} does not hold {pot.spec.cups} cups")
    if review.old is not None and review.old.spec.cups > pot.spec.cups:
        review.warn(f"{review.user} spills {review.old.spec.cups - pot.spec.cups} cups")
    if pot.spec.cups == 7:
        raise RuntimeError("seven is too hard")


async def fill(review: Review[TeapotSpec, Any], pot: Obj) -> None:
    if not pot["spec"].get("teas"):
        pot["spec"]["teas"] = ["green"]
    pot["metadata"].setdefault("labels", {})["tea/filled"] = "dry" if review.dry_run else "yes"


async def nothing(ctx: Context[Any, Any], obj: Object[Any, Any]) -> None: ...


TEA = Operator(
    "tea",
    Controller(Teapot, nothing),
    Mutate(Teapot, fill),
    Validate(Teapot, check, operations=("CREATE", "UPDATE", "DELETE")),
)


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_writes_are_mutated_and_validated(cluster: VirtualCluster) -> None:
    client, warnings = cluster.client, list[str]()
    client.sender.on_warning = warnings.append
    async with cluster.running(TEA):
        made = await client.create(teapot(cups=6))
        assert made["spec"] == {"cups": 6, "teas": ["green"]}
        assert made["metadata"]["labels"] == {"tea/filled": "yes"}
        tried = await client.create(teapot("other"), dry_run=True)
        assert tried["metadata"]["labels"] == {"tea/filled": "dry"}

        with pytest.raises(Forbidden) as denied:
            await client.create(teapot("huge", cups=9))
        assert denied.value.message == (
            'admission webhook "validate.teapots.example.com" denied the request: huge does not hold 9 cups'
        )
        await client.patch(Teapot.ref, "brown", {"spec": {"cups": 4, "teas": ["keep"]}}, "default")
        assert warnings == ["kubernetes-admin spills 2 cups"]
        with pytest.raises(ApiError, match="it is still used") as held:
            await client.delete(Teapot.ref, "brown", "default")
        assert (held.value.code, held.value.reason) == (409, "Conflict")
        with pytest.raises(InternalError, match="failed calling webhook"):
            await client.create(teapot("seven", cups=7))


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_a_killed_operator_does_not_answer_until_it_is_restarted(cluster: VirtualCluster) -> None:
    starts = list[Operator]()

    def process() -> Operator:
        number = len(starts) + 1

        async def slowly(review: Review[TeapotSpec, Any], pot: Obj) -> None:
            if pot["spec"]["cups"] == 1:
                await cluster.clock.sleep(5)
            pot["spec"]["teas"] = [f"start {number}"]

        starts.append(Operator("tea", Controller(Teapot, nothing), Mutate(Teapot, slowly)))
        return starts[-1]

    client = cluster.client
    async with cluster.running(process):
        assert (await client.create(teapot("first")))["spec"]["teas"] == ["start 1"]
        slow = asyncio.ensure_future(client.create(teapot("slow", cups=1)))
        await cluster.sleep(1)
        await cluster.kill("tea")
        with pytest.raises(InternalError, match=r"failed calling webhook .*: EOF"):
            await slow
        with pytest.raises(InternalError, match=r"failed calling webhook .*: connect: connection refused"):
            await client.create(teapot("second"))
        await cluster.start("tea")
        assert (await client.create(teapot("second")))["spec"]["teas"] == ["start 2"]
        await cluster.stop("tea")
        with pytest.raises(InternalError, match="connect: connection refused"):
            await client.create(teapot("third"))


async def meddle(cluster: VirtualCluster) -> None:
    await cluster.client.create(teapot())
    await cluster.until(lambda: cluster.find(("v1", "ConfigMap"), "brown"))
    await cluster.instant()  # until the operator that has written it has crashed
    await cluster.client.patch(Teapot.ref, "brown", {"spec": {"cups": 5}}, "default")


async def insist(cluster: VirtualCluster) -> None:
    async def poured() -> bool:
        try:
            await cluster.client.patch(Teapot.ref, "brown", {"spec": {"cups": 5}}, "default")
        except InternalError:
            return False
        return True

    await cluster.client.create(teapot())
    await cluster.until(lambda: cluster.find(("v1", "ConfigMap"), "brown"))
    await cluster.until(poured)


def test_exploring_a_crash_also_stops_the_webhooks() -> None:
    async def brew(ctx: Context[TeapotSpec, Any], pot: Object[TeapotSpec, Any]) -> None:
        data = {"cups": str(pot.spec.cups)}
        await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": pot.name}, "data": data})

    owned = Kind("v1", "ConfigMap")
    operator = Operator("tea", Controller(Teapot, brew, owns=(owned,)), Mutate(Teapot, fill))
    bare: dict[str, Any] = {"controllers": (), "scheduler": False}
    with pytest.raises(Diverged, match=r"connection refused. The webhooks of a crashed operator do not answer"):
        explore(operator, meddle, only="crash-after:1", **bare)
    explore(operator, insist, only="crash-after:1", **bare)


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_an_unreachable_webhook_fails_writes_unless_its_policy_is_ignore(cluster: VirtualCluster) -> None:
    client = cluster.client
    async with cluster.running(TEA):
        pass
    await TEA.install(client, cluster.clock)
    with pytest.raises(InternalError, match="connect: connection refused"):
        await client.create(teapot())
    lenient = Operator("tea", Controller(Teapot, nothing), Validate(Teapot, check, required=False))
    async with cluster.running(lenient):
        with pytest.raises(Forbidden, match="9 cups"):
            await client.create(teapot(cups=9))
        found = [each["metadata"]["name"] for ref in CONFIGURATIONS for each in (await client.list(ref)).items]
        assert found == ["tea"], "what is not wanted any longer is gone"
    await client.create(teapot(cups=9))


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_rules_select_the_reviewed_writes(cluster: VirtualCluster) -> None:
    seen: list[tuple[str, str]] = []

    async def look(review: Review[Any, Any], obj: Object[Any, Any]) -> None:
        seen.append((review.operation, f"{obj.name}/{review.subresource}"))

    validate = Validate(
        Teapot,
        look,
        subresource="status",
        selector={"matchLabels": {"a": "b"}},
        namespace_selector={},
        conditions=({"name": "not-me", "expression": "request.userInfo.username != 'me'"},),
        timeout=3,
    )
    async with cluster.running(Operator("tea", Controller(Teapot, nothing), validate)):
        for name, labels in (("plain", {}), ("labelled", {"a": "b"})):
            obj = teapot(name)
            obj["metadata"]["labels"] = labels
            await cluster.client.create(obj)
            await cluster.client.patch(Teapot.ref, name, {"status": {"x": 1}}, "default", subresource="status")
        assert seen == [("UPDATE", "labelled/status")]


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_a_slow_webhook_times_out(cluster: VirtualCluster) -> None:
    async def slow(review: Review[Any, Any], obj: Object[Any, Any]) -> None:
        await cluster.sleep(20)

    async with cluster.running(Operator("tea", Controller(Teapot, nothing), Validate(Teapot, slow, timeout=2))):
        began = cluster.clock.monotonic()
        with pytest.raises(InternalError, match="context deadline exceeded"):
            await cluster.client.create(teapot())
        assert 1.9 < cluster.clock.monotonic() - began < 3


# -- conversion -------------------------------------------------------------------------------------------------------


@dataclass
class PotSpecV1:
    litres: str = "1l"


@dataclass
class PotSpecV2:
    millilitres: int = 1000
    lid: bool = False


PotV1 = Kind("example.com/v1", "Pot", spec=PotSpecV1)
PotV2 = Kind("example.com/v2", "Pot", spec=PotSpecV2)
_LID = "example.com/lid"


def upgrade(pot: Obj) -> None:
    lid = (pot["metadata"].get("annotations") or {}).pop(_LID, "") == "yes"
    pot["spec"] = {"millilitres": int(pot["spec"]["litres"].removesuffix("l")) * 1000, "lid": lid}


def downgrade(pot: Obj) -> Obj:
    if pot["spec"].get("lid"):
        pot["metadata"].setdefault("annotations", {})[_LID] = "yes"
    return {"spec": {"litres": f"{pot['spec']['millilitres'] // 1000}l"}, "metadata": pot["metadata"]}


VERSIONS = Convert(PotV2, Version(PotV1, upgrade, downgrade, deprecated="use v2"))


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_several_versions_of_a_kind(cluster: VirtualCluster) -> None:
    client, litres = cluster.client, list[int]()

    async def look(ctx: Context[Any, Any], pot: Object[PotSpecV2, Any]) -> None:
        litres.append(pot.spec.millilitres)

    async with cluster.running(Operator("pots", Controller(PotV2, look), VERSIONS)):
        old = {"apiVersion": "example.com/v1", "kind": "Pot", "metadata": {"name": "a", "namespace": "default"}}
        await client.create({**old, "spec": {"litres": "2l"}})
        await cluster.instant()
        assert litres == [2000]
        assert (await client.get(PotV2.ref, "a", "default"))["spec"] == {"millilitres": 2000, "lid": False}
        await client.patch(PotV2.ref, "a", {"spec": {"lid": True}}, "default")
        as_v1 = await client.get(PotV1.ref, "a", "default")
        assert (as_v1["spec"], as_v1["metadata"]["annotations"]) == ({"litres": "2l"}, {_LID: "yes"})
        await client.update({**as_v1, "spec": {"litres": "3l"}})
        found = await client.get(PotV2.ref, "a", "default")
        assert found["spec"] == {"millilitres": 3000, "lid": True}, "nothing is lost on the way there and back"
        definition = await client.get(("apiextensions.k8s.io/v1", "CustomResourceDefinition"), "pots.example.com")
        versions = {each["name"]: (each["storage"], each.get("deprecated")) for each in definition["spec"]["versions"]}
        assert versions == {"v2": (True, None), "v1": (False, True)}
        again = Operator("pots", Controller(PotV2, look), VERSIONS)
        await again.install(client, cluster.clock)
        kept = await client.get(("apiextensions.k8s.io/v1", "CustomResourceDefinition"), "pots.example.com")
        assert kept["spec"]["conversion"] == definition["spec"]["conversion"], "where nobody says, it stays"
        with pytest.raises(ApiError, match=r"conversion to example\.com/v2 failed: invalid literal for int"):
            await client.create({**old, "metadata": {"name": "b", "namespace": "default"}, "spec": {"litres": "some"}})


# -- without a server -------------------------------------------------------------------------------------------------


def review(**request: Any) -> bytes:
    asked = {"uid": "u-1", "operation": "CREATE", "userInfo": {"username": "me"}, **request}
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked})


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_reviews_are_answered_without_a_server(cluster: VirtualCluster) -> None:
    reviewer = TEA.reviewer(cluster.client, cluster.clock)

    async def ask(path: str, body: bytes) -> tuple[int, Any]:
        status, answer = await reviewer.answer(path, body)
        return status, orjson.loads(answer)["response"] if status == 200 else answer

    status, answer = await ask("/mutate/mutate.teapots.example.com", review(object=teapot(teas=["black"])))
    assert (status, answer["uid"], answer["allowed"]) == (200, "u-1", True)
    assert orjson.loads(b64decode(answer["patch"])) == [
        {"op": "add", "path": "/metadata/labels", "value": {"tea/filled": "yes"}}
    ]
    status, answer = await ask("/validate/validate.teapots.example.com", review(object=teapot(cups="many")))
    assert (answer["allowed"], answer["status"]["code"], answer["status"]["reason"]) == (False, 422, "Invalid")
    assert (await ask("/elsewhere", review()))[0] == 404
    for body in (b"", b"[]", b"{}", b'{"apiVersion": "admission.k8s.io/v1"}', b'{"apiVersion": 1}'):
        assert (await ask("/mutate/mutate.teapots.example.com", body))[0] == 400
    shown = text(reviewer.families())
    assert 'webhook_requests_total{webhook="/mutate/mutate.teapots.example.com",code="400"} 5' in shown
    assert 'webhook_latency_seconds_count{webhook="/validate/validate.teapots.example.com"} 1' in shown
    assert "elsewhere" not in shown, "whoever asks for anything does not make series"


def test_client_configurations_of_webhooks() -> None:
    by_service = ReachedAt(namespace="tea-system", service="tea", authority=b"PEM")
    _, mutating, validating = TEA.manifests(by_service)
    (hook,) = validating["webhooks"]
    assert hook["clientConfig"] == {
        "service": {
            "namespace": "tea-system",
            "name": "tea",
            "port": 443,
            "path": "/validate/validate.teapots.example.com",
        },
        "caBundle": "UEVN",
    }
    assert hook["rules"][0]["operations"] == ["CREATE", "UPDATE", "DELETE"]
    assert mutating["webhooks"][0]["reinvocationPolicy"] == "Never"
    assert [each["kind"] for each in TEA.manifests()] == ["CustomResourceDefinition"]


def test_invalid_webhooks_are_rejected() -> None:
    with pytest.raises(ValueError, match="between 1 and 30"):
        Validate(Teapot, check, timeout=31)
    with pytest.raises(ValueError, match="the same group and names"):
        Convert(PotV2, Version(Teapot, upgrade, downgrade))
    with pytest.raises(ValueError, match="with Convert"):
        Operator("pots", Controller(PotV1, nothing), Controller(PotV2, nothing, name="other")).manifests()
    assert issubclass(Denied, ApiError) and not issubclass(Denied, Invalid)
