"""Large inputs are processed on worker threads, small ones on the event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from custom_resource_harness import CRDS, GROUP, CustomResourceHarness, definition, of, version
from server_harness import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC, YAML, ServerHarness

from setpoint.apiserver import internal_writes
from setpoint.apiserver import worker as worker_module
from setpoint.apiserver.worker import LARGE, Worker
from setpoint.kinds.apiextensions import custom_strategy, customresourcedefinition, definition_rules
from setpoint.meta import body, chunked_json, tracebacks
from setpoint.meta.decode import decode
from setpoint.meta.errors import Invalid

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@pytest.fixture
def worker() -> Any:
    worker = Worker(threads=True)
    yield worker
    worker.stop()


async def test_the_loop_runs_while_a_large_input_is_processed(worker: Worker) -> None:
    seen = threading.Event()
    asyncio.get_running_loop().call_soon(seen.set)
    # It would wait for ever if the loop waited for it.
    assert await worker.run(LARGE, seen.wait, 20)


async def test_small_inputs_are_processed_inline(worker: Worker) -> None:
    assert await worker.run(LARGE - 1, threading.current_thread) is threading.current_thread()
    assert await worker.run(LARGE, threading.current_thread) is not threading.current_thread()


async def test_without_threads_everything_is_processed_inline() -> None:
    assert await Worker().run(1 << 30, threading.current_thread) is threading.current_thread()


async def test_huge_inputs_do_not_delay_large_ones(worker: Worker) -> None:
    done = threading.Event()
    huge = asyncio.ensure_future(worker.run(1 << 20, done.wait, 20))
    await asyncio.sleep(0)
    assert await worker.run(LARGE, lambda: 17) == 17
    assert not huge.done()
    done.set()
    assert await huge


async def test_exceptions_are_propagated(worker: Worker) -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await worker.run(LARGE, fail)


@pytest.fixture
async def threaded() -> AsyncIterator[ServerHarness]:
    harness = await ServerHarness.open(worker=Worker(threads=True))
    yield harness
    harness.api.resources.worker.stop()
    await harness.close()


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


async def test_every_way_to_write_a_large_object(threaded: ServerHarness, on_loop: list[str]) -> None:
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


async def test_concurrent_large_writes_of_one_object_are_not_lost(threaded: ServerHarness) -> None:
    await threaded.make(CONFIGMAPS, config_map("one"))
    patches = [threaded.patch(f"{CONFIGMAPS}/one", {"data": {f"mine-{number}": "x"}}) for number in range(10)]
    assert {reply.status for reply in await asyncio.gather(*patches)} == {200}
    data = (await threaded.get(f"{CONFIGMAPS}/one")).json["data"]
    assert {f"mine-{number}" for number in range(10)} <= data.keys()


async def test_large_answers_in_yaml_are_written_beside_the_loop(
    threaded: ServerHarness, on_loop: list[str], monkeypatch: pytest.MonkeyPatch
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
@pytest.mark.parametrize("accept", ["application/json", TABLE, METADATA])
async def test_lists_are_built_in_steps(
    harness: ServerHarness, path: str, accept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have their turn in between; what they change is not seen."""
    for number in range(500):
        await harness.make(CONFIGMAPS, {"metadata": {"name": f"c{number:03}", "labels": {"many": ""}}})
    slicer, waits = harness.api.resources.slicer, 0

    async def wait(cost: float, *, unauthenticated: bool = False) -> None:
        nonlocal waits
        waits += 1
        await harness.delete(f"{CONFIGMAPS}/c{399 - waits:03}")
        await asyncio.sleep(0)

    monkeypatch.setattr(type(slicer), "over_budget", lambda self: True)
    monkeypatch.setattr(
        type(slicer), "wait", lambda self, cost, unauthenticated=False: wait(cost, unauthenticated=False)
    )
    listed = (await harness.get(CONFIGMAPS + path, headers={"accept": accept})).json
    found = listed["rows"] if "Table" in accept else listed["items"]
    assert len(found) == (400 if "limit" in path else 500)
    assert ("continue" in listed["metadata"]) == ("limit" in path)
    assert waits >= (12 if path or "as=" in accept else 0)


async def test_a_collection_is_selected_in_steps(harness: ServerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(200):
        await harness.make(CONFIGMAPS, {"metadata": {"name": f"c{number:03}", "labels": {"many": ""}}})
    waits: list[float] = []

    async def wait(cost: float) -> None:
        waits.append(cost)

    monkeypatch.setattr(type(harness.api.resources.slicer), "over_budget", lambda self: True)
    monkeypatch.setattr(
        type(harness.api.resources.slicer), "wait", lambda self, cost, unauthenticated=False: wait(cost)
    )
    reply = await harness.delete(f"{CONFIGMAPS}?labelSelector=many")
    assert len(reply.json["items"]) == 200
    assert len(waits) >= 6


class LongSteps:
    """Calls that block the event loop for long: of orjson on any thread, of the chunked reader on the loop's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[str] = []
        self._loop_thread = threading.current_thread()
        loads, dumps, read = orjson.loads, orjson.dumps, chunked_json.loads

        def spied_loads(data: Any) -> Any:
            if len(data) > 4 * chunked_json.WINDOW:
                self._add("loads")
            return loads(data)

        def spied_dumps(*args: Any, **kwargs: Any) -> bytes:
            data = dumps(*args, **kwargs)
            if len(data) > chunked_json.LARGE and threading.current_thread() is self._loop_thread:
                self._add("dumps")
            return data

        def spied_read(data: bytes) -> Any:
            if threading.current_thread() is self._loop_thread:
                self._add("chunked_json.loads")
            return read(data)

        monkeypatch.setattr(chunked_json, "loads", spied_read)
        monkeypatch.setattr(orjson, "loads", spied_loads)
        monkeypatch.setattr(orjson, "dumps", spied_dumps)

    def _add(self, what: str) -> None:
        caller = sys._getframe(2)
        if caller.f_code.co_qualname.startswith("MutationDetector"):
            return
        self.found.append(f"{what} in {caller.f_code.co_qualname} on {threading.current_thread().name}")


async def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(5_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("the condition does not become true")


def huge_config_map(name: str, **more: Any) -> bytes:
    data = {f"key-{number}": "value" for number in range(20_000)}
    metadata = {"name": name, "labels": {"huge": "yes"}}
    return orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data, **more})


async def test_every_step_of_a_huge_request_is_short(threaded: ServerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects are read in bounded steps, and neither read nor written on the event loop."""
    one, changed, applied = huge_config_map("one"), huge_config_map("one", immutable=False), huge_config_map("two")
    assert len(one) > 2 * chunked_json.LARGE
    steps = LongSteps(monkeypatch)
    assert (await threaded.post(CONFIGMAPS, one)).status == 201
    assert (await threaded.put(f"{CONFIGMAPS}/one", changed)).status == 200
    assert (await threaded.put(f"{CONFIGMAPS}/one", changed)).status == 200
    assert (await threaded.patch(f"{CONFIGMAPS}/one", b'{"data":{"key-1":"x"}}', MERGE_PATCH)).status == 200
    assert (await threaded.patch(f"{CONFIGMAPS}/one", b'{"metadata":{"labels":{"a":"b"}}}', MERGE_PATCH)).status == 200
    assert (await threaded.patch(f"{CONFIGMAPS}/two?fieldManager=m", applied, APPLY)).status == 201
    assert (await threaded.get(CONFIGMAPS, headers={"accept": YAML})).status == 200
    watcher = await threaded.watch(f"{CONFIGMAPS}?watch=1&labelSelector=huge&resourceVersion=0")
    await eventually(lambda: watcher.raw.count(b'"ADDED"') == 2)
    for accept in (TABLE, METADATA, "application/json"):
        reply = await threaded.get(f"{CONFIGMAPS}?labelSelector=huge", headers={"accept": accept})
        assert reply.status == 200
        assert b"one" in reply.body
    assert (await threaded.delete(f"{CONFIGMAPS}?labelSelector=huge")).status == 200
    assert steps.found == []


async def test_the_server_changes_huge_objects_beside_the_loop(
    threaded: ServerHarness, on_loop: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await threaded.post(CONFIGMAPS, huge_config_map("one"))).status == 201
    await threaded.watch(f"{CONFIGMAPS}?watch=1&labelSelector=huge")
    steps = LongSteps(monkeypatch)
    home, threads = threading.current_thread(), []

    def spied(*args: Any, **kwargs: Any) -> Any:
        threads.append(threading.current_thread())
        return decode(*args, **kwargs)

    monkeypatch.setattr(internal_writes, "decode", spied)
    entry = await internal_writes.update(
        threaded.api.resources, "", "configmaps", "default", "one", lambda obj: obj["data"].update(mine="x")
    )
    assert entry is not None
    assert b'"mine":"x"' in entry.value
    assert threads
    assert home not in threads
    assert (steps.found, on_loop) == ([], [])


async def test_the_errors_of_a_large_object_are_described_beside_the_loop(
    threaded: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    describe = Invalid.of

    def spied(*args: Any) -> Invalid:
        threads.append(threading.current_thread())
        return describe(*args)

    monkeypatch.setattr(Invalid, "of", spied)
    await threaded.make(CONFIGMAPS, {"metadata": {"name": "small"}})
    assert (await threaded.post(CONFIGMAPS, huge_config_map("x" * 300))).status == 422
    labels = {"metadata": {"labels": {"a": "x" * LARGE}}}
    assert (await threaded.patch(f"{CONFIGMAPS}/small", labels, MERGE_PATCH)).status == 422
    assert len(threads) == 2
    assert threading.current_thread() not in threads


async def test_what_a_huge_request_has_made_is_released_beside_the_loop(
    threaded: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    references: list[int] = []

    def spied(held: list[Any]) -> None:
        threads.append(threading.current_thread())
        references.append(sys.getrefcount(held[-1]))
        tracebacks.release_parts(held)
        assert held == []

    monkeypatch.setattr("setpoint.apiserver.server.release_parts", spied)
    assert (await threaded.post(CONFIGMAPS, huge_config_map("one"))).status == 201
    assert (await threaded.put(f"{CONFIGMAPS}/one", huge_config_map("one", immutable=False))).status == 200
    assert (await threaded.patch(f"{CONFIGMAPS}/one", b'{"data":{"key-1":"x"}}', MERGE_PATCH)).status == 200
    assert (await threaded.patch(f"{CONFIGMAPS}/two?fieldManager=m", huge_config_map("two"), APPLY)).status == 201
    selector = ",".join(f"!a{number}" for number in range(20_000))
    assert (await threaded.get(f"{CONFIGMAPS}?labelSelector={selector}")).status == 200
    assert (await threaded.delete(f"{CONFIGMAPS}?labelSelector=huge")).status == 200
    assert len(threads) == 6
    assert threading.current_thread() not in threads
    # Nothing else references what is released: only the list, and the argument of the count.
    assert references == [2] * 6
    assert (await threaded.post(CONFIGMAPS, {"metadata": {"name": "small"}})).status == 201
    assert len(threads) == 6


async def test_a_huge_request_that_fails_is_released_beside_the_loop(
    threaded: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def spied(error: BaseException) -> None:
        threads.append(threading.current_thread())
        tracebacks.release_frames(error)
        assert error.__traceback__ is None

    monkeypatch.setattr("setpoint.apiserver.server.release_frames", spied)
    assert (await threaded.post(CONFIGMAPS, huge_config_map("x" * 300))).status == 422
    assert (await threaded.post(CONFIGMAPS, {"metadata": {"name": "X"}})).status == 422
    assert len(threads) == 1
    assert threading.current_thread() not in threads


@pytest.fixture
async def definitions() -> AsyncIterator[CustomResourceHarness]:
    harness = await CustomResourceHarness.open(worker=Worker(threads=True))
    assert isinstance(harness, CustomResourceHarness)
    harness.begin()
    yield harness
    harness.api.resources.worker.stop()
    await harness.end()


async def established(harness: CustomResourceHarness, name: str) -> None:
    for _ in range(5_000):
        if b'"InitialNamesAccepted"' in (await harness.get(f"{CRDS}/{name}")).body:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"{name} is not established")


async def test_large_definitions_of_a_group_are_read_beside_the_loop(
    definitions: CustomResourceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = of(**{f"property{number}": {"type": "string", "maxLength": 10} for number in range(4_000)})
    bodies = {
        plural: definition(version(spec=large), plural=plural, kind=plural.title()) for plural in ("foos", "bars")
    }
    encoded = {plural: orjson.dumps(body) for plural, body in bodies.items()}
    assert len(encoded["foos"]) > chunked_json.LARGE
    steps = LongSteps(monkeypatch)
    for plural, text in encoded.items():
        assert (await definitions.post(CRDS, text)).status == 201
        await established(definitions, f"{plural}.{GROUP}")
    assert (await definitions.delete(f"{CRDS}/foos.{GROUP}")).status == 200
    await eventually(lambda: "foos" not in {key[2] for key in definitions.api.resources.served})
    assert steps.found == []


async def test_small_definitions_are_compiled_beside_the_loop(
    definitions: CustomResourceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first definition loads modules for longer than the loop may be blocked."""
    threads: dict[str, threading.Thread] = {}
    validate, compile_version = definition_rules.validate_definition, custom_strategy.CustomStrategy.__init__

    def spied_validate(*args: Any, **kwargs: Any) -> Any:
        threads["validate"] = threading.current_thread()
        return validate(*args, **kwargs)

    def spied_compile(*args: Any, **kwargs: Any) -> None:
        threads[f"compile {args[1]['name']}"] = threading.current_thread()
        compile_version(*args, **kwargs)

    monkeypatch.setattr(customresourcedefinition, "validate_definition", spied_validate)
    monkeypatch.setattr(custom_strategy.CustomStrategy, "__init__", spied_compile)
    made = definition(version(), version("v2", served=False, storage=False))
    assert (await definitions.post(CRDS, made)).status == 201
    await established(definitions, f"foos.{GROUP}")
    assert threads.keys() == {"validate", "compile v1", "compile v2"}
    assert threading.current_thread() not in threads.values()


async def test_the_present_state_of_a_watch_is_selected_in_steps(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(200):
        await harness.make(CONFIGMAPS, {"metadata": {"name": f"c{number:03}", "labels": {"many": ""}}})
    waits: list[float] = []

    async def wait(cost: float) -> None:
        waits.append(cost)

    slicer = type(harness.api.resources.slicer)
    monkeypatch.setattr(slicer, "over_budget", lambda self: True)
    monkeypatch.setattr(slicer, "wait", lambda self, cost, unauthenticated=False: wait(cost))
    watcher = await harness.watch(f"{CONFIGMAPS}?watch=1&labelSelector=many&resourceVersion=0")
    await eventually(lambda: len(watcher.events) == 200)
    assert watcher.summary == [("ADDED", f"c{number:03}") for number in range(200)]
    assert len(waits) >= 6


async def test_a_small_body_with_aliases_is_processed_beside_the_loop(
    threaded: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    parse = body.parse_yaml

    def spied(data: bytes) -> Any:
        threads.append(threading.current_thread())
        return parse(data)

    monkeypatch.setattr("setpoint.apiserver.bodies.parse_yaml", spied)
    home = threading.current_thread()
    assert (await threaded.post(CONFIGMAPS, b"metadata: {name: one}\ndata: {a: b}", YAML)).status == 201
    assert (await threaded.post(CONFIGMAPS, b"metadata: {name: two}\ndata: {a: &a b, c: *a}", YAML)).status == 201
    assert [thread is home for thread in threads] == [True, False]
