"""A definition that is deleted and created again with the same name: no cached data of the first one remains."""

from __future__ import annotations

from custom_resource_harness import CRDS, FOOS, GROUP, CustomResourceHarness, foo, of, version
from server_harness import settle

CLUSTER_FOOS = f"/apis/{GROUP}/v1/foos"


async def _remove(harness: CustomResourceHarness) -> None:
    assert (await harness.delete(f"{CRDS}/foos.{GROUP}")).status == 200
    for _ in range(40):
        await settle(40)
        await harness.clock.advance(1.0)
        if (await harness.get(f"{CRDS}/foos.{GROUP}")).status == 404:
            break
    await harness.clock.advance(5.0)
    await settle(40)


async def test_a_namespaced_kind_becomes_cluster_scoped(
    harness: CustomResourceHarness,
) -> None:
    await harness.define()
    await harness.make(FOOS, foo())
    await _remove(harness)
    await harness.define(scope="Cluster")
    reply = await harness.post(CLUSTER_FOOS, foo())
    assert reply.status == 201, reply.json


async def test_a_cluster_scoped_kind_becomes_namespaced(
    harness: CustomResourceHarness,
) -> None:
    await harness.define(scope="Cluster")
    await harness.make(CLUSTER_FOOS, foo())
    await _remove(harness)
    await harness.define()
    reply = await harness.post(f"/apis/{GROUP}/v1/namespaces/nowhere/foos", foo())
    assert (reply.status, reply.json["message"]) == (404, 'namespaces "nowhere" not found')


async def test_no_table_retains_a_deleted_definition(harness: CustomResourceHarness) -> None:
    chain = harness.api.resources.env.admission
    before = len(chain._handling)
    await harness.define()
    await harness.make(FOOS, foo())
    assert len(chain._handling) > before
    await _remove(harness)
    assert not [sort for sort in chain._handling if GROUP in sort]


async def test_schema_and_columns_are_those_of_the_new_definition(harness: CustomResourceHarness) -> None:
    column = {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
    await harness.define(version(spec=of(size={"type": "integer"}), additionalPrinterColumns=[column]))
    await harness.make(FOOS, foo(spec={"size": 1}))
    await _remove(harness)
    await harness.define(version(spec=of(size={"type": "string"})), kind="Fooo")
    obj = {**foo(spec={"size": "large"}), "kind": "Fooo"}
    assert (await harness.post(FOOS, obj)).status == 201
    table = await harness.get(FOOS, headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
    assert [one["name"] for one in table.json["columnDefinitions"]] == ["Name", "Age"]
    document = (await harness.get(f"/openapi/v3/apis/{GROUP}/v1")).json
    assert "com.example.v1.Foo" not in document["components"]["schemas"]
    assert "com.example.v1.Fooo" in document["components"]["schemas"]
