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
    body = b"metadata: {name: three}\ndata:\n" + b"".join(b"  k%d: v\n" % number for number in range(3_000))
    assert (await threaded.post(CONFIGMAPS, body, YAML)).status == 201
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
