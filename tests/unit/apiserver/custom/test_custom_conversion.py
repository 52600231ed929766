"""Conversion between versions by a webhook."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from custom_resource_harness import FOOS, CustomResourceHarness, foo, of, version
from mutation_detector import MutationDetector
from server_harness import APPLY, settle

from setpoint.apiserver.remote_servers import RemoteServer, RemoteServerError
from setpoint.wire.message import HttpAnswer, Request, Response

TWOS = FOOS.replace("/v1/", "/v2/")


def _split(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert between v1, which has hostPort, and v2, which has host and port."""
    spec = dict(obj.get("spec") or {})
    if "hostPort" in spec:
        spec["host"], _, spec["port"] = spec.pop("hostPort").partition(":")
    elif "host" in spec:
        spec["hostPort"] = f"{spec.pop('host')}:{spec.pop('port')}"
    return {**obj, "spec": spec}


class Webhook:
    """Answers conversion reviews; `spoil` changes the response."""

    def __init__(self) -> None:
        self.asked: list[tuple[RemoteServer, str, dict[str, Any]]] = []
        self.spoil: Callable[[dict[str, Any]], Any] = lambda review: review
        self.problem = ""

    async def forward(self, server: RemoteServer, request: Request, timeout: float) -> HttpAnswer:
        raise AssertionError

    async def call(self, server: RemoteServer, request: Request, timeout: float) -> Response:
        if self.problem:
            raise RemoteServerError(self.problem)
        review = orjson.loads(request.body)
        self.asked.append((server, f"{request.path}?{request.query}", review))
        wanted = review["request"]["desiredAPIVersion"]
        objects = [{**_split(obj), "apiVersion": wanted} for obj in review["request"]["objects"]]
        response = {
            "uid": review["request"]["uid"],
            "convertedObjects": objects,
            "result": {"status": "Success"},
        }
        answer = {"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": response}
        return Response(200, orjson.dumps(self.spoil(answer)))


@pytest.fixture
def webhook() -> Webhook:
    return Webhook()


@pytest.fixture
async def harness(
    mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture, webhook: Webhook
) -> AsyncIterator[CustomResourceHarness]:
    opened = await CustomResourceHarness.open(servers=webhook)
    assert isinstance(opened, CustomResourceHarness)
    opened.begin()
    client = {"url": "https://convert.example.com:9443/crd", "caBundle": b64encode(_CA).decode()}
    await opened.define(
        version("v1", of(hostPort={"type": "string"}), selectableFields=[{"jsonPath": ".spec.hostPort"}]),
        version(
            "v2",
            of(host={"type": "string"}, port={"type": "string"}),
            storage=False,
            selectableFields=[{"jsonPath": ".spec.host"}],
        ),
        conversion={
            "strategy": "Webhook",
            "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1", "v1beta1"]},
        },
    )
    yield opened
    await opened.end()


_CA = b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"


async def test_reads_and_writes_are_converted(harness: CustomResourceHarness, webhook: Webhook) -> None:
    created = await harness.make(TWOS, foo(spec={"host": "h", "port": "80"}, version="v2"))
    assert created["spec"] == {"host": "h", "port": "80"}
    server, path, review = webhook.asked[0]
    assert (server.host, server.port, server.ca_bundle, path) == (
        "convert.example.com",
        9443,
        _CA.strip(),
        "/crd?timeout=30s",
    )
    assert review["apiVersion"] == "apiextensions.k8s.io/v1"
    assert review["request"]["objects"][0]["spec"] == {"host": "h", "port": "80"}
    assert (await harness.get(f"{FOOS}/f")).json["spec"] == {"hostPort": "h:80"}
    patched = await harness.patch(f"{TWOS}/f", {"spec": {"port": "81"}})
    assert patched.json["spec"] == {"host": "h", "port": "81"}
    assert (await harness.get(f"{FOOS}/f")).json["spec"] == {"hostPort": "h:81"}
    replaced = {**patched.json, "spec": {"host": "i", "port": "1"}}
    assert (await harness.put(f"{TWOS}/f", replaced)).json["spec"] == {"host": "i", "port": "1"}


async def test_a_list_is_converted_in_one_request_and_cached(harness: CustomResourceHarness, webhook: Webhook) -> None:
    for name in "abc":
        await harness.make(FOOS, foo(name, {"hostPort": f"{name}:1"}))
    webhook.asked.clear()
    listed = (await harness.get(TWOS)).json["items"]
    assert [item["spec"]["host"] for item in listed] == ["a", "b", "c"]
    assert [len(review["request"]["objects"]) for _, _, review in webhook.asked] == [3]
    await harness.get(TWOS)
    await harness.get(f"{TWOS}/b")
    assert len(webhook.asked) == 1
    assert (await harness.get(FOOS)).json["items"][0]["spec"] == {"hostPort": "a:1"}
    assert len(webhook.asked) == 1


async def test_field_selectors_apply_to_the_requested_version(harness: CustomResourceHarness, webhook: Webhook) -> None:
    for name in "ab":
        await harness.make(FOOS, foo(name, {"hostPort": f"{name}:1"}))
    assert [
        item["metadata"]["name"] for item in (await harness.get(f"{TWOS}?fieldSelector=spec.host=b")).json["items"]
    ] == ["b"]
    assert len((await harness.get(f"{FOOS}?fieldSelector=spec.hostPort=a:1")).json["items"]) == 1
    watcher = await harness.watch(f"{TWOS}?fieldSelector=spec.host=b")
    await settle()
    await harness.patch(f"{TWOS}/a", {"spec": {"host": "b"}})
    await harness.patch(f"{FOOS}/b", {"spec": {"hostPort": "c:1"}})
    await settle(20)
    assert watcher.summary == [("ADDED", "b"), ("ADDED", "a"), ("DELETED", "b")]
    assert watcher.events[1]["object"]["spec"] == {"host": "b", "port": "1"}
    assert {event["object"]["apiVersion"] for event in watcher.events} == {"example.com/v2"}


async def test_a_failing_webhook_is_named(harness: CustomResourceHarness, webhook: Webhook) -> None:
    await harness.make(FOOS, foo(spec={"hostPort": "a:1"}))
    webhook.problem = "dial tcp 10.0.0.1:9443: connect: connection refused"
    reply = await harness.get(f"{TWOS}/f")
    assert (reply.status, reply.json["message"]) == (
        500,
        "conversion webhook for example.com/v1, Kind=Foo failed: "
        'Post "https://convert.example.com:9443/crd?timeout=30s": '
        "dial tcp 10.0.0.1:9443: connect: connection refused",
    )
    watcher = await harness.watch(TWOS)
    await settle()
    assert watcher.events[0]["type"] == "ERROR"
    assert watcher.ended
    assert (await harness.get(f"{FOOS}/f")).status == 200


def _with(**response: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda review: {**review, "response": {**review["response"], **response}}


def _object(**more: Any) -> Callable[[dict[str, Any]], Any]:
    def spoil(review: dict[str, Any]) -> dict[str, Any]:
        objects = [{**obj, **more} for obj in review["response"]["convertedObjects"]]
        return {**review, "response": {**review["response"], "convertedObjects": objects}}

    return spoil


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda review: [],
            "failed: couldn't get version/kind; json parse error: json: cannot unmarshal array into Go ",
        ),
        (lambda review: {**review, "kind": "X"}, "got apiextensions.k8s.io/v1, Kind=X"),
        (lambda review: {**review, "response": None}, "failed: no response provided"),
        (_with(uid="other"), 'got "other"'),
        (_with(result={"status": "Failure", "message": "no way"}), "failed: no way"),
        (_with(result={}), "failed: response.result.status was '', not 'Success'"),
        (_with(convertedObjects=[]), "returned 0 objects, expected 1"),
        (_object(apiVersion="x/v2"), "invalid groupVersion (expected example.com/v2, received x/v2)"),
        (_object(kind="Bar"), "invalid kind (expected Foo, received Bar)"),
        (_object(metadata={"name": "other"}), "must have the same name: f != other"),
        (_object(metadata=1), "invalid metadata of type"),
    ],
)
async def test_invalid_responses(
    harness: CustomResourceHarness, webhook: Webhook, spoil: Callable[[dict[str, Any]], Any], said: str
) -> None:
    await harness.make(FOOS, foo(spec={"hostPort": "a:1"}))
    webhook.spoil = spoil
    reply = await harness.get(f"{TWOS}/f")
    assert reply.status == 500
    assert said in reply.json["message"]


async def test_only_labels_and_annotations_can_be_changed(harness: CustomResourceHarness, webhook: Webhook) -> None:
    made = await harness.make(FOOS, foo(spec={"hostPort": "a:1"}, metadata={"labels": {"a": "b"}}))

    def spoil(review: dict[str, Any]) -> dict[str, Any]:
        for obj in review["response"]["convertedObjects"]:
            obj["metadata"] = {**obj["metadata"], "labels": {"c": "d"}, "generation": 77, "finalizers": ["x/y"]}
        return review

    webhook.spoil = spoil
    meta = (await harness.get(f"{TWOS}/f")).json["metadata"]
    assert (meta["labels"], meta["generation"], "finalizers" in meta) == ({"c": "d"}, 1, False)
    assert meta["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_managed_fields_of_other_versions_are_converted(harness: CustomResourceHarness, webhook: Webhook) -> None:
    one = foo(spec={"hostPort": "h:1"})
    assert (await harness.patch(f"{FOOS}/f?fieldManager=a", one, APPLY)).status == 201
    two = foo(spec={"host": "h", "port": "2"}, version="v2")
    refused = await harness.patch(f"{TWOS}/f?fieldManager=b", two, APPLY)
    assert (refused.status, refused.message) == (
        409,
        'Apply failed with 1 conflict: conflict with "a": .spec.hostPort',
    )
    forced = await harness.patch(f"{TWOS}/f?fieldManager=b&force=true", two, APPLY)
    assert forced.status == 200, forced.body
    assert _owners(forced.json, "f:hostPort") == [] and _owners(forced.json, "f:port") == ["b"]
    # An update through the first version takes over the fields of the second.
    live = (await harness.get(f"{FOOS}/f")).json
    put = await harness.put(f"{FOOS}/f?fieldManager=c", {**live, "spec": {"hostPort": "i:3"}})
    assert _owners(put.json, "f:hostPort") == ["c"] and _owners(put.json, "f:port") == []
    patched = await harness.patch(f"{TWOS}/f?fieldManager=d", {"spec": {"port": "4"}})
    assert _owners(patched.json, "f:hostPort") == [] and _owners(patched.json, "f:port") == ["d"]


async def test_fields_applied_in_another_version_are_removed_by_apply(harness: CustomResourceHarness) -> None:
    two = foo(spec={"host": "h", "port": "2"}, version="v2", metadata={"labels": {"l": "1"}})
    assert (await harness.patch(f"{TWOS}/f?fieldManager=a", two, APPLY)).status == 201
    applied = await harness.patch(f"{FOOS}/f?fieldManager=a", foo(spec={"hostPort": "h:2"}), APPLY)
    assert applied.status == 200, applied.body
    assert "labels" not in applied.json["metadata"] and applied.json["spec"] == {"hostPort": "h:2"}


async def test_updates_of_the_stored_version_do_not_need_the_webhook(
    harness: CustomResourceHarness, webhook: Webhook
) -> None:
    await harness.patch(f"{TWOS}/f?fieldManager=a", foo(spec={"host": "h", "port": "2"}, version="v2"), APPLY)
    webhook.problem = "connection refused"
    patched = await harness.patch(f"{FOOS}/f?fieldManager=b", {"spec": {"hostPort": "i:3"}})
    assert patched.status == 200, patched.body
    assert _owners(patched.json, "f:hostPort") == ["b"] and _owners(patched.json, "f:port") == ["a"]
    refused = await harness.patch(f"{FOOS}/f?fieldManager=b", foo(spec={"hostPort": "j:4"}), APPLY)
    assert refused.status == 500 and "conversion webhook" in refused.message


def _owners(obj: dict[str, Any], name: str) -> list[str]:
    return [
        entry["manager"] for entry in obj["metadata"]["managedFields"] if name in entry["fieldsV1"].get("f:spec", {})
    ]
