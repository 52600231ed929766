"""Large inputs are worked on beside the event loop, small ones on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from front_door import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC, YAML, FrontDoor

from setpoint.apiserver import worker as worker_module
from setpoint.apiserver.worker import LARGE, Worker
from setpoint.meta import body

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def worker() -> Any:
    worker = Worker()
    worker.use_threads()
    yield worker
    worker.stop()


async def test_the_loop_goes_on_while_large_input_is_worked_on(worker: Worker) -> None:
    seen = threading.Event()
    asyncio.get_running_loop().call_soon(seen.set)
    # It would wait for ever if the loop waited for it.
    assert await worker.run(LARGE, seen.wait, 20)


async def test_small_input_is_worked_on_at_once(worker: Worker) -> None:
    assert await worker.run(LARGE - 1, threading.current_thread) is threading.current_thread()
    assert await worker.run(LARGE, threading.current_thread) is not threading.current_thread()


async def test_without_threads_all_is_done_inline() -> None:
    assert await Worker().run(1 << 30, threading.current_thread) is threading.current_thread()


async def test_what_is_huge_does_not_delay_what_is_less(worker: Worker) -> None:
    done = threading.Event()
    huge = asyncio.ensure_future(worker.run(1 << 20, done.wait, 20))
    await asyncio.sleep(0)
    assert await worker.run(LARGE, lambda: 17) == 17
    assert not huge.done()
    done.set()
    assert await huge


async def test_exceptions_come_back(worker: Worker) -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await worker.run(LARGE, fail)


@pytest.fixture
async def threaded(door: FrontDoor) -> AsyncIterator[FrontDoor]:
    door.api.worker.use_threads()
    yield door
    door.api.worker.stop()


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of functions of large inputs that were called on the loop's thread."""
    found: list[str] = []
    home = threading.current_thread()
    run = worker_module.Worker.run

    async def spied(self: Worker, size: int, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        def call() -> Any:
            if size >= LARGE and threading.current_thread() is home:
                found.append(function.__qualname__)
            return function(*args, **kwargs)

        return await run(self, size, call)

    monkeypatch.setattr(worker_module.Worker, "run", spied)
    return found


def config_map(name: str) -> dict[str, Any]:
    data = {f"key-{number}": "value" for number in range(2_000)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_every_way_to_write_a_large_object(threaded: FrontDoor, on_loop: list[str]) -> None:
    """The answers are those of a server without threads."""
    small = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "small"}, "data": {"a": "b"}}
    await threaded.make(CONFIGMAPS, small)
    assert (await threaded.post(CONFIGMAPS, config_map("one"))).status == 201
    assert (await threaded.put(f"{CONFIGMAPS}/one", config_map("one") | {"immutable": False})).status == 200
    assert (await threaded.patch(f"{CONFIGMAPS}/one", {"data": {"key-1": "x"}}, MERGE_PATCH)).json["data"][
        "key-1"
    ] == "x"
    assert (await threaded.patch(f"{CONFIGMAPS}/small", {"data": config_map("")["data"]}, STRATEGIC)).status == 200
    operations = [{"op": "add", "path": f"/data/k{number}", "value": "v"} for number in range(1_000)]
    patched = await threaded.patch(f"{CONFIGMAPS}/small", operations, JSON_PATCH)
    assert len(patched.json["data"]) == 3_001
    applied = await threaded.patch(f"{CONFIGMAPS}/two?fieldManager=m", orjson.dumps(config_map("two")), APPLY)
    assert applied.status == 201
    manifest = b"metadata: {name: three}\ndata:\n" + b"".join(b"  k%d: v\n" % number for number in range(3_000))
    assert (await threaded.post(CONFIGMAPS, manifest, YAML)).status == 201
    wrong = await threaded.post(CONFIGMAPS, config_map("Wrong"))
    assert wrong.status == 422
    assert "metadata.name" in wrong.message
    selector = ",".join(f"!a{number}" for number in range(5_000))
    assert len((await threaded.get(f"{CONFIGMAPS}?labelSelector={selector}")).json["items"]) == 4
    assert on_loop == []


async def test_large_writes_of_one_object_do_not_lose_each_other(threaded: FrontDoor) -> None:
    await threaded.make(CONFIGMAPS, config_map("one"))
    patches = [threaded.patch(f"{CONFIGMAPS}/one", {"data": {f"mine-{number}": "x"}}) for number in range(10)]
    assert {reply.status for reply in await asyncio.gather(*patches)} == {200}
    data = (await threaded.get(f"{CONFIGMAPS}/one")).json["data"]
    assert {f"mine-{number}" for number in range(10)} <= data.keys()


async def test_large_answers_in_yaml_are_written_beside_the_loop(
    threaded: FrontDoor, on_loop: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[threading.Thread] = []
    dump = body.dump_yaml

    def spied(value: Any) -> bytes:
        written.append(threading.current_thread())
        return dump(value)

    await threaded.make(CONFIGMAPS, config_map("one"))
    monkeypatch.setattr(body, "dump_yaml", spied)
    one = await threaded.get(f"{CONFIGMAPS}/one", headers={"accept": YAML})
    many = await threaded.get(CONFIGMAPS, headers={"accept": YAML})
    some = await threaded.get(f"{CONFIGMAPS}?labelSelector=!a", headers={"accept": YAML})
    assert [reply.header("content-type") for reply in (one, many, some)] == [YAML] * 3
    assert many.body == some.body
    assert b"key-1999: value" in one.body
    assert len(written) == 3
    assert threading.current_thread() not in written
    assert on_loop == []


@pytest.mark.parametrize(
    "path", ["?labelSelector=many", "?fieldSelector=metadata.name!=x", "", "?labelSelector=many&limit=400"]
)
@pytest.mark.parametrize("accept", ["application/json", "application/json;as=Table;g=meta.k8s.io;v=v1"])
async def test_lists_are_made_in_steps(
    door: FrontDoor, path: str, accept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have their turn in between; what they change is not seen."""
    for number in range(500):
        await door.make(CONFIGMAPS, {"metadata": {"name": f"c{number:03}", "labels": {"many": ""}}})
    turns, waits = door.api.turns, 0

    async def wait(cost: float, *, stranger: bool = False) -> None:
        nonlocal waits
        waits += 1
        await door.delete(f"{CONFIGMAPS}/c{399 - waits:03}")
        await asyncio.sleep(0)

    monkeypatch.setattr(type(turns), "long", lambda self: True)
    monkeypatch.setattr(type(turns), "wait", lambda self, cost, stranger=False: wait(cost, stranger=stranger))
    listed = (await door.get(CONFIGMAPS + path, headers={"accept": accept})).json
    found = listed["rows"] if "Table" in accept else listed["items"]
    assert len(found) == (400 if "limit" in path else 500)
    assert ("continue" in listed["metadata"]) == ("limit" in path)
    assert waits >= (12 if path or "Table" in accept else 0)


async def test_a_collection_is_chosen_in_steps(door: FrontDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(200):
        await door.make(CONFIGMAPS, {"metadata": {"name": f"c{number:03}", "labels": {"many": ""}}})
    waits: list[float] = []

    async def wait(cost: float) -> None:
        waits.append(cost)

    monkeypatch.setattr(type(door.api.turns), "long", lambda self: True)
    monkeypatch.setattr(type(door.api.turns), "wait", lambda self, cost, stranger=False: wait(cost))
    reply = await door.delete(f"{CONFIGMAPS}?labelSelector=many")
    assert len(reply.json["items"]) == 200
    assert len(waits) >= 6
