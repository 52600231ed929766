"""A definition that is deleted and made again under the same name: nothing of the first one is remembered."""

from __future__ import annotations

from custom_door import CRDS, FOOS, GROUP, CustomDoor, foo, of, version
from front_door import settle

CLUSTER_FOOS = f"/apis/{GROUP}/v1/foos"


async def _remove(door: CustomDoor) -> None:
    assert (await door.delete(f"{CRDS}/foos.{GROUP}")).status == 200
    for _ in range(40):
        await settle(40)
        await door.clock.advance(1.0)
        if (await door.get(f"{CRDS}/foos.{GROUP}")).status == 404:
            break
    await door.clock.advance(5.0)
    await settle(40)


async def test_a_namespaced_kind_that_becomes_cluster_scoped_asks_for_no_namespace(door: CustomDoor) -> None:
    await door.define()
    await door.make(FOOS, foo())
    await _remove(door)
    await door.define(scope="Cluster")
    reply = await door.post(CLUSTER_FOOS, foo())
    assert reply.status == 201, reply.json


async def test_a_cluster_scoped_kind_that_becomes_namespaced_needs_its_namespace(door: CustomDoor) -> None:
    await door.define(scope="Cluster")
    await door.make(CLUSTER_FOOS, foo())
    await _remove(door)
    await door.define()
    reply = await door.post(f"/apis/{GROUP}/v1/namespaces/nowhere/foos", foo())
    assert (reply.status, reply.json["message"]) == (404, 'namespaces "nowhere" not found')


async def test_no_table_remembers_a_definition_that_is_gone(door: CustomDoor) -> None:
    chain = door.api.env.admission
    before = len(chain._handling)
    await door.define()
    await door.make(FOOS, foo())
    assert len(chain._handling) > before
    await _remove(door)
    assert not [sort for sort in chain._handling if GROUP in sort]


async def test_the_schema_and_columns_are_those_of_the_new_definition(door: CustomDoor) -> None:
    column = {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
    await door.define(version(spec=of(size={"type": "integer"}), additionalPrinterColumns=[column]))
    await door.make(FOOS, foo(spec={"size": 1}))
    await _remove(door)
    await door.define(version(spec=of(size={"type": "string"})), kind="Fooo")
    obj = {**foo(spec={"size": "large"}), "kind": "Fooo"}
    assert (await door.post(FOOS, obj)).status == 201
    table = await door.get(FOOS, headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
    assert [one["name"] for one in table.json["columnDefinitions"]] == ["Name", "Age"]
    document = (await door.get(f"/openapi/v3/apis/{GROUP}/v1")).json
    assert "com.example.v1.Foo" not in document["components"]["schemas"]
    assert "com.example.v1.Fooo" in document["components"]["schemas"]
