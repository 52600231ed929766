"""Seats of a class: isolated clusters that sleep when they are idle, and their limits."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from class_seats import ANN, BOB, FORKS, PODS, ask, seats_for

from setpoint.cluster.classroom.seats import QUOTA, Seats
from setpoint.meta.errors import ApiError, BadRequest, Forbidden
from setpoint.testing import VirtualCluster, virtual
from setpoint.wire.message import Request, Response, StreamResponse

POD = {"metadata": {"name": "mine"}, "spec": {"containers": [{"name": "a", "image": "nginx"}]}}


class Reader:
    """A client that keeps a stream open."""

    buffered = 0

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    def write(self, data: bytes) -> None: ...

    def write_chunks(self, chunks: bytes) -> None: ...

    async def drained(self) -> None: ...

    async def closed(self) -> None:
        await self.gone.wait()


async def names(seats: Seats, seat: str, path: str = PODS) -> list[str]:
    return [each["metadata"]["name"] for each in (await ask(seats, seat, "GET", path))[1]["items"]]


@virtual(nodes=0)
async def test_each_seat_has_clusters_of_its_own(cluster: VirtualCluster) -> None:
    async with seats_for(cluster, ANN, BOB) as seats:
        assert [seats.state(each) for each in (ANN, BOB)] == ["new", "new"]
        assert (await ask(seats, ANN, "POST", PODS, POD))[0] == 201
        assert (await names(seats, ANN), await names(seats, BOB)) == (["mine"], [])

        status, made = await ask(seats, ANN, "POST", FORKS, {"name": "lesson-loop", "empty": True, "nodes": 1})
        assert (status, made["name"], made["path"]) == (201, "lesson-loop", "/forks/lesson-loop")
        assert await names(seats, ANN, "/forks/lesson-loop/api/v1/nodes") == ["node-1"]
        assert await names(seats, ANN, f"/forks/lesson-loop{PODS}") == []
        _, listed = await ask(seats, ANN, "GET", FORKS)
        assert [each["name"] for each in listed["forks"]] == ["lesson-loop"]
        assert (await ask(seats, BOB, "GET", FORKS))[1] == {"forks": []}
        assert (await ask(seats, BOB, "GET", "/forks/lesson-loop/api/v1/nodes"))[0] == 404

        for path in (f"/forks/{ANN}/api", f"/forks/../{ANN}/api", f"/forks/lesson-loop/../../{ANN}/api", "/../api"):
            assert (await ask(seats, BOB, "GET", f"{path}/v1/pods"))[0] in (301, 400, 404), path
        assert (await ask(seats, ANN, "DELETE", f"{FORKS}/lesson-loop"))[0] == 200
        assert (await ask(seats, ANN, "GET", f"{FORKS}/lesson-loop"))[0] == 404
        await seats.remove(BOB)
        with pytest.raises(ApiError, match="there is no such seat"):
            seats.peer(BOB)


@virtual(nodes=0)
async def test_idle_clusters_sleep(cluster: VirtualCluster) -> None:
    async with seats_for(cluster, ANN, BOB, idle=300.0) as seats:
        await ask(seats, ANN, "POST", PODS, POD)
        await ask(seats, BOB, "GET", PODS)
        watching = Request("GET", PODS, "watch=true", {}, b"", seats.peer(BOB))
        answer = await seats.handle(watching)
        assert isinstance(answer, StreamResponse)

        async with asyncio.TaskGroup() as tasks:
            stream = tasks.create_task(asyncio.wait_for(answer.run(Reader()), None))
            await cluster.sleep(400)
            await seats.sleep_idle(cluster.clock.now())
            assert [seats.state(each) for each in (ANN, BOB)] == ["asleep", "live"], "Bob's page is open"
            stream.cancel()
        await seats.sleep_idle(cluster.clock.now())
        assert seats.state(BOB) == "live", "it was used a moment ago"
        await cluster.sleep(301)
        await seats.sleep_idle(cluster.clock.now())
        assert (seats.state(BOB), seats.live()) == ("asleep", 0)
        assert await names(seats, ANN) == ["mine"]
        assert (seats.state(ANN), seats.live()) == ("live", 1)


@virtual(nodes=0)
async def test_a_back_off_goes_on_after_the_sleep(cluster: VirtualCluster) -> None:
    """A container that waits for its next start waits for the rest of its back-off, and is not started at once."""

    async def restarts() -> int:
        return int((await ask(seats, ANN, "GET", f"{PODS}/mine"))[1]["status"]["containerStatuses"][0]["restartCount"])

    async with seats_for(cluster, ANN, idle=100.0) as seats:
        failing = {"name": "a", "image": "busybox", "command": ["sh", "-c", "exit 1"]}
        await ask(seats, ANN, "POST", PODS, {"metadata": {"name": "mine"}, "spec": {"containers": [failing]}})
        await cluster.sleep(10)
        while await restarts() < 5:  # the next one follows after half a minute
            await cluster.sleep(5)
        await cluster.sleep(11)
        before = await ask(seats, ANN, "GET", f"{PODS}/mine")
        assert before[1]["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        await seats.forks.sleep(seats.forks.find(ANN))
        assert seats.state(ANN) == "asleep"
        await cluster.sleep(3600)
        assert await ask(seats, ANN, "GET", f"{PODS}/mine") == before
        await cluster.sleep(10)
        assert (seats.state(ANN), await restarts()) == ("live", 5), "the rest of the back-off is not over"
        await cluster.sleep(30)
        assert await restarts() == 6


@virtual(nodes=0)
async def test_limits(cluster: VirtualCluster) -> None:
    async with seats_for(cluster, ANN, BOB, requests=10.0, burst=20, lessons=2) as seats:
        with pytest.raises(Forbidden, match="all 2 seats of this process are taken"):
            seats.add("s00000003")
        with pytest.raises(BadRequest):
            seats.add("../../etc")
        for number in (1, 2, 3):
            await ask(seats, ANN, "POST", FORKS, {"name": f"lesson-{number}", "empty": True, "nodes": 0})
            await cluster.sleep(1)
        _, listed = await ask(seats, ANN, "GET", FORKS)
        assert [each["name"] for each in listed["forks"]] == ["lesson-2", "lesson-3"], "the oldest is gone"
        refused = [({"name": "x"}, 400), ({"name": "x", "empty": True, "virtual": True}, 400), ({"empty": True}, 400)]
        assert [(await ask(seats, ANN, "POST", FORKS, body))[0] for body, _ in refused] == [code for _, code in refused]

        answers = [(await ask(seats, BOB, "GET", "/version"))[0] for _ in range(25)]
        assert (answers[:18], answers[-1]) == ([200] * 18, 429)
        assert (await ask(seats, ANN, "GET", FORKS))[0] == 200, "others do not notice"
        await cluster.sleep(5)
        assert (await ask(seats, BOB, "GET", "/version"))[0] == 200


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MAPS = "/api/v1/namespaces/default/configmaps"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


def definition(plural: str, **spec: Any) -> dict[str, Any]:
    """A custom kind whose objects have this schema for `spec`."""
    schema = {"type": "object", "properties": {"spec": {"type": "object", **spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": plural[:-1], "kind": plural[:-1].capitalize()}
    content = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{plural}.example.com"}, "spec": content}


@virtual(nodes=0)
async def test_expensive_expressions_end_and_harm_no_neighbour(cluster: VirtualCluster) -> None:
    """Rules and policies in CEL, patterns that other engines match in exponential time, and aliases in YAML."""
    async with seats_for(cluster, ANN, BOB) as seats:
        many = {"type": "array", "maxItems": 1000, "items": {"type": "string", "maxLength": 10}}
        rule = {"rule": "self.l.all(x, self.l.exists(y, x == y))"}
        costly = definition("rules", properties={"l": many}, **{"x-kubernetes-validations": [rule]})
        status, refusal = await ask(seats, ANN, "POST", CRDS, costly)
        assert status == 422 and "estimated rule cost exceeds budget" in refusal["message"]

        text = {"type": "string", "pattern": "^(a+)+$"}
        assert (await ask(seats, ANN, "POST", CRDS, definition("bombs", properties={"text": text})))[0] == 201
        await cluster.sleep(5)
        bomb = {"apiVersion": "example.com/v1", "kind": "Bomb", "metadata": {"name": "b"}}
        bombs = "/apis/example.com/v1/namespaces/default/bombs"
        status, refusal = await ask(seats, ANN, "POST", bombs, {**bomb, "spec": {"text": "a" * 100_000 + "!"}})
        assert status == 422 and "should match '^(a+)+$'" in refusal["message"]

        loop = "[1,2,3,4,5,6,7,8,9,0]"
        expression = "true"
        for name in "abcdefgh":
            expression = f"{loop}.all({name}, {expression})"
        rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
        policy = {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": expression}]}
        assert (await ask(seats, ANN, "POST", POLICIES, {"metadata": {"name": "p"}, "spec": policy}))[0] == 201
        binding = {"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
        assert (await ask(seats, ANN, "POST", POLICIES.replace("policies", "policybindings"), binding))[0] == 201
        await cluster.sleep(5)
        status, refusal = await ask(seats, ANN, "POST", MAPS, {"metadata": {"name": "m"}})
        assert status == 422 and refusal["message"].endswith("actual cost limit exceeded")

        aliases = "".join(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 10))
        document = f"apiVersion: v1\nkind: ConfigMap\na0: &a0 x\n{aliases}".encode()
        headers = {"content-type": "application/yaml"}
        answer = await seats.handle(Request("POST", MAPS, "", headers, document, seats.peer(ANN)))
        assert isinstance(answer, Response) and answer.status in (400, 413), answer
        assert (await ask(seats, BOB, "POST", MAPS, {"metadata": {"name": "m"}}))[0] == 201
        assert (await ask(seats, ANN, "GET", MAPS))[0] == 200


@virtual(nodes=0)
async def test_a_seat_has_so_many_streams_and_custom_kinds(cluster: VirtualCluster) -> None:
    async with seats_for(cluster, ANN, BOB, streams=3) as seats:

        async def watch(seat: str) -> Response | StreamResponse:
            answer = await seats.handle(Request("GET", MAPS, "watch=true", {}, b"", seats.peer(seat)))
            assert isinstance(answer, (Response, StreamResponse))
            return answer

        reader = Reader()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                answer = await watch(ANN)
                assert isinstance(answer, StreamResponse)
                tasks.create_task(asyncio.wait_for(answer.run(reader), None))
                await cluster.sleep(1)
            refused = await watch(ANN)
            assert isinstance(refused, Response) and refused.status == 429
            assert orjson.loads(refused.whole_body)["message"] == "a seat may have at most 3 open streams"
            assert (await ask(seats, ANN, "GET", MAPS))[0] == 200
            assert isinstance(await watch(BOB), StreamResponse)
            reader.gone.set()
        assert isinstance(await watch(ANN), StreamResponse)

        codes = [(await ask(seats, ANN, "POST", CRDS, definition(f"k{number}s")))[0] for number in range(51)]
        assert codes == [201] * 50 + [403]
        assert (await ask(seats, BOB, "POST", CRDS, definition("mines")))[0] == 201


@virtual(nodes=0)
async def test_the_history_of_a_seat_is_bounded(cluster: VirtualCluster) -> None:
    async with seats_for(cluster, ANN, BOB) as seats:
        assert (await ask(seats, BOB, "POST", MAPS, {"metadata": {"name": "mine"}}))[0] == 201
        await ask(seats, ANN, "POST", MAPS, {"metadata": {"name": "big"}})
        running = seats.forks.find(ANN).cluster
        assert running is not None
        for number in range(100):
            body = {"metadata": {"name": "big"}, "data": {"text": f"{number:03}" * 300_000}}
            assert (await ask(seats, ANN, "PUT", f"{MAPS}/big", body))[0] == 200
        store = running.store
        kept = store.transactions(store.compacted, 10_000)[0]
        past = sum(len(each.before.value) for each in kept if each.before is not None)
        assert past <= QUOTA.past_size + 2_000_000, "an object more in each half"
        assert len({id(each.before) for each in kept if each.key.endswith("/big")}) >= 5, "the latest remain"
        recorded = running.write_log.writes
        assert sum(len(each.before or b"") + len(each.now or b"") for each in recorded) <= QUOTA.past_size
        status, found = await ask(seats, ANN, "GET", f"{MAPS}/big")
        assert (status, found["data"]["text"][:3]) == (200, "099")
        assert await names(seats, BOB, f"{MAPS}?fieldSelector=metadata.name=mine") == ["mine"]
