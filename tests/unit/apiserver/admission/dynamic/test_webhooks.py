"""Admission webhooks over HTTPS, through the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from admission_policies import APPS, CORE, REGISTRATION, config, deployment, rule
from custom_resource_harness import CustomResourceHarness, foo, version
from server_harness import EPOCH
from webhook_server import WebhookServer, deny, patch

from setpoint.cluster.certificates import CertificateFiles, ensure_certificates

MAPS = f"{CORE}/configmaps"
VALIDATING = f"{REGISTRATION}/validatingwebhookconfigurations"
MUTATING = f"{REGISTRATION}/mutatingwebhookconfigurations"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure_certificates(tmp_path_factory.mktemp("pki"), EPOCH, extra_names=["hook.default.svc"])


@pytest.fixture
async def server(files: CertificateFiles) -> AsyncIterator[WebhookServer]:
    served = WebhookServer(files)
    await served.start()
    yield served
    served.stop()


def hook(server: WebhookServer, path: str, *rules: Any, **more: Any) -> dict[str, Any]:
    return {
        "name": f"{path.strip('/')}.example.com",
        "clientConfig": server.client(path),
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": list(rules) or [rule("configmaps", operations=("*",))],
        **more,
    }


async def register(harness: CustomResourceHarness, path: str, name: str, *hooks: dict[str, Any]) -> None:
    await harness.make(path, {"metadata": {"name": name}, "webhooks": list(hooks)})


async def test_the_admission_review(harness: CustomResourceHarness, server: WebhookServer) -> None:
    await register(harness, VALIDATING, "v", hook(server, "/v"))
    assert (await harness.post(f"{MAPS}?fieldManager=me", config())).status == 201
    (request,) = server.requests("/v")
    stored = (await harness.get(f"{MAPS}/c")).json
    assert server.queries == ["timeout=10s"]
    assert request.pop("object")["metadata"]["uid"] == stored["metadata"]["uid"]
    assert len(request.pop("uid")) == 36
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    assert request == {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": "c",
        "namespace": "default",
        "operation": "CREATE",
        "oldObject": None,
        "dryRun": False,
        "userInfo": {"username": "admin", "uid": "admin-uid", "groups": ["system:masters", "system:authenticated"]},
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"},
    }
    await harness.patch(f"{MAPS}/c", {"data": {"x": "y"}})
    assert server.requests("/v")[1]["oldObject"]["data"] == {"k": "v"}
    assert server.requests("/v")[1]["object"]["data"] == {"k": "v", "x": "y"}
    await harness.delete(f"{MAPS}/c?propagationPolicy=Background")
    gone = server.requests("/v")[2]
    assert (gone["object"], gone["oldObject"]["kind"]) == (None, "ConfigMap")
    assert gone["options"]["propagationPolicy"] == "Background"


@pytest.mark.parametrize(
    "status, code, reason, message",
    [
        ({}, 400, "", "without explanation"),
        ({"message": "no"}, 400, "", ": no"),
        ({"code": 403, "reason": "Forbidden"}, 403, "Forbidden", ": Forbidden"),
        ({"code": 200, "message": "odd"}, 400, "", ": odd"),
        ({"code": 422, "message": "bad", "reason": "Invalid", "details": {"name": "c"}}, 422, "Invalid", ": bad"),
    ],
)
@pytest.mark.parametrize("kind", [VALIDATING, MUTATING])
async def test_denials(
    harness: CustomResourceHarness, server: WebhookServer, kind: str, status: Any, code: int, reason: str, message: str
) -> None:
    server.answers["/v"] = deny(**status)
    await register(harness, kind, "v", hook(server, "/v"))
    reply = await harness.post(MAPS, config())
    sep = "" if message.startswith(":") else " "
    assert reply.message == f'admission webhook "v.example.com" denied the request{sep}{message}'
    assert (reply.status, reply.json["code"], reply.json.get("reason", "")) == (code, code, reason)
    assert reply.json.get("details") == status.get("details")


_OK = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b"


@pytest.mark.parametrize(
    "raw, text",
    [
        (
            b"HTTP/1.1 500 x\r\ncontent-length: 4\r\n\r\nboom",
            'failed to call webhook: an error on the server ("boom") has prevented the request from succeeding',
        ),
        (
            b"HTTP/1.1 404 x\r\ncontent-length: 0\r\n\r\n",
            "failed to call webhook: the server could not find the requested resource",
        ),
        (
            b"HTTP/1.1 302 x\r\nlocation: https://elsewhere/\r\ncontent-length: 0\r\n\r\n",
            "failed to call webhook: the server responded with the status code 302 but did not return more information",
        ),
        (_OK % (2, b"{}"), "received invalid webhook response: webhook response was absent"),
        (_OK % (0, b""), "failed to call webhook: 0-length response with status code: 200 and content type: "),
        (
            _OK % (2, b"[]"),
            "failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal array into ",
        ),
        (
            _OK % (32, b'{"kind":"Pod","apiVersion":"v1"}'),
            'failed to call webhook: no kind "Pod" is registered for version "v1" in scheme ',
        ),
        (_OK % (23, b'{"response":{"uid":""}}'), "received invalid webhook response: expected response.uid="),
    ],
)
@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
async def test_failures(
    harness: CustomResourceHarness, server: WebhookServer, raw: bytes, text: str, failure_policy: str
) -> None:
    server.raw["/v"] = raw
    await register(harness, VALIDATING, "v", hook(server, "/v", failurePolicy=failure_policy))
    reply = await harness.post(MAPS, config())
    if failure_policy == "Ignore":
        assert reply.status == 201
        return
    assert reply.status == 500 and reply.json["reason"] == "InternalError"
    message = f'failed calling webhook "v.example.com": {text}'
    assert reply.message.startswith(f"Internal error occurred: {message}")
    assert reply.json["details"]["causes"][0]["message"].startswith(message)


async def test_an_unreachable_webhook(harness: CustomResourceHarness, server: WebhookServer) -> None:
    server.raw["/slow"] = b""
    await register(harness, VALIDATING, "v", hook(server, "/slow", timeoutSeconds=1))
    reply = await harness.post(MAPS, config())
    url = f"https://127.0.0.1:{server.port}/slow?timeout=1s"
    message = (
        f'failed calling webhook "slow.example.com": failed to call webhook: Post "{url}": context deadline exceeded'
    )
    assert reply.message == f"Internal error occurred: {message}"
    gone = {"service": {"namespace": "default", "name": "none", "path": "/x"}}
    await harness.patch(f"{VALIDATING}/v", {"webhooks": [hook(server, "/gone", clientConfig=gone)]})
    message = 'failed calling webhook "gone.example.com": failed to call webhook: '
    message += 'Post "https://none.default.svc:443/x?timeout=10s": service "none" not found'
    assert (await harness.post(MAPS, config())).message == f"Internal error occurred: {message}"


async def test_a_service_is_resolved_to_its_endpoints(harness: CustomResourceHarness, server: WebhookServer) -> None:
    await harness.make(f"{CORE}/services", {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}})
    labels = {"kubernetes.io/service-name": "hook"}
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    where = {"addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"port": server.port}]}
    # The API refuses loopback addresses as endpoints, so the test writes it to the store.
    made = {"metadata": {"name": "hook", "labels": labels}, **where, "endpoints": [{"addresses": ["10.0.0.1"]}]}
    await harness.make(slices, made)
    entry = next(iter(harness.api.resources.caches["discovery.k8s.io/endpointslices/"].scan("default")))
    changed = entry.value.replace(b"10.0.0.1", b"127.0.0.1")
    from setpoint.store.interface import Put

    await harness.store.txn([Put(entry.key, changed, entry.revision)])
    client = {"service": {"namespace": "default", "name": "hook", "path": "/v"}, "caBundle": server.authority}
    await register(harness, VALIDATING, "v", hook(server, "/v", clientConfig=client))
    reply = await harness.post(MAPS, config())
    assert reply.status == 201, reply.message
    assert len(server.requests("/v")) == 1


async def test_validating_webhooks_are_called_concurrently(
    harness: CustomResourceHarness, server: WebhookServer
) -> None:
    server.together = asyncio.Barrier(3)
    server.answers["/b"] = deny(message="b")
    server.answers["/a"] = lambda review: {"allowed": True, "warnings": ["careful", "careful"]}
    await register(harness, VALIDATING, "v", *(hook(server, f"/{name}") for name in "abc"))
    reply = await harness.post(MAPS, config())
    assert reply.message == 'admission webhook "b.example.com" denied the request: b'
    assert reply.warnings == ['299 - "careful"']


async def test_a_validating_webhook_changes_nothing(harness: CustomResourceHarness, server: WebhookServer) -> None:
    server.answers["/v"] = patch({"op": "add", "path": "/data/x", "value": "y"})
    await register(harness, VALIDATING, "v", hook(server, "/v"))
    reply = await harness.post(MAPS, config())
    assert reply.message.endswith("received invalid webhook response: validating webhook may not return response.patch")


# -- mutating ---------------------------------------------------------------------------------------------------------


def add(name: str, value: str = "1") -> Any:
    return patch({"op": "add", "path": f"/data/{name}", "value": value})


async def test_mutating_webhooks_are_called_in_order_of_names(
    harness: CustomResourceHarness, server: WebhookServer
) -> None:
    server.answers |= {"/first": add("first"), "/second": add("second"), "/third": add("third")}
    await register(harness, MUTATING, "b", hook(server, "/third"))
    await register(harness, MUTATING, "a", hook(server, "/first"), hook(server, "/second"))
    made = await harness.make(MAPS, config())
    assert made["data"] == {"k": "v", "first": "1", "second": "1", "third": "1"}
    assert [path for path, _ in server.asked] == ["/first", "/second", "/third"]
    assert server.requests("/third")[0]["object"]["data"] == {"k": "v", "first": "1", "second": "1"}
    seen = server.requests("/first")[0]["object"]
    assert seen["metadata"]["namespace"] == "default" and "uid" not in seen["metadata"]
    assert seen["metadata"]["managedFields"][0]["manager"] == "tests"


async def test_a_patched_object_is_decoded_defaulted_and_validated(
    harness: CustomResourceHarness, server: WebhookServer
) -> None:
    sidecar = {"op": "add", "path": "/spec/containers/-", "value": {"name": "side", "image": "s"}}
    server.answers["/m"] = patch(sidecar)
    await register(harness, MUTATING, "m", hook(server, "/m", rule("pods")))
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = await harness.make(f"{CORE}/pods", pod)
    assert made["spec"]["containers"][1]["imagePullPolicy"] == "Always"
    server.answers["/m"] = patch({"op": "add", "path": "/spec/containers/0/image", "value": 3})
    reply = await harness.post(f"{CORE}/pods", {**pod, "metadata": {"name": "q"}})
    assert reply.status == 500 and "cannot unmarshal number" in reply.message
    server.answers["/m"] = patch({"op": "add", "path": "/spec/restartPolicy", "value": "Sometimes"})
    assert (await harness.post(f"{CORE}/pods", {**pod, "metadata": {"name": "q"}})).status == 422
    server.answers["/m"] = patch({"op": "remove", "path": "/spec/nothing"})
    reply = await harness.post(f"{CORE}/pods", {**pod, "metadata": {"name": "q"}})
    assert reply.status == 500 and reply.message.startswith("Internal error occurred: ")


async def test_webhooks_are_reinvoked_if_needed(harness: CustomResourceHarness, server: WebhookServer) -> None:
    server.answers["/second"] = add("second")
    await register(
        harness,
        MUTATING,
        "m",
        hook(server, "/first", reinvocationPolicy="IfNeeded"),
        hook(server, "/never"),
        hook(server, "/second", reinvocationPolicy="IfNeeded"),
        hook(server, "/last", reinvocationPolicy="IfNeeded"),
    )
    made = await harness.make(MAPS, config())
    assert made["data"] == {"k": "v", "second": "1"}
    assert [path for path, _ in server.asked] == ["/first", "/never", "/second", "/last", "/first"]
    assert server.requests("/first")[1]["object"]["data"] == {"k": "v", "second": "1"}


@pytest.mark.parametrize(
    "answer, text",
    [
        ({"patch": "", "patchType": "JSONPatch"}, "webhook returned response.patchType but not response.patch"),
        ({"patch": "W10=", "patchType": None}, "webhook returned response.patch but not response.patchType"),
        ({"patch": "W10=", "patchType": "Other"}, ""),
        ({"patch": "W3t9XQ==", "patchType": "Other"}, 'unsupported patch type "Other"'),
        ({"patch": "enp6", "patchType": "JSONPatch"}, "invalid character 'z' looking for beginning of value"),
        ({"allowed": "yes"}, "AdmissionResponse.response.allowed of type bool"),
    ],
)
async def test_unusual_patches(harness: CustomResourceHarness, server: WebhookServer, answer: Any, text: str) -> None:
    server.answers["/m"] = lambda review: {"allowed": True, **answer}
    await register(harness, MUTATING, "m", hook(server, "/m"))
    reply = await harness.post(MAPS, config())
    assert reply.status == (500 if text else 201)
    assert not text or reply.message.endswith(text)


async def test_updates_are_patched(harness: CustomResourceHarness, server: WebhookServer) -> None:
    await harness.make(MAPS, config())
    server.answers["/m"] = add("n", "x")
    await register(harness, MUTATING, "m", hook(server, "/m"))
    assert (await harness.patch(f"{MAPS}/c", {"data": {"k": "w"}})).json["data"] == {"k": "w", "n": "x"}
    refused = await harness.delete(f"{MAPS}/c")
    text = 'admission webhook "m.example.com" attempted to modify the object, which is not supported for this operation'
    assert refused.message == f"Internal error occurred: {text}"


async def test_a_scale_can_be_changed(harness: CustomResourceHarness, server: WebhookServer) -> None:
    await harness.make(f"{APPS}/deployments", deployment("d", 1))
    server.answers["/m"] = patch({"op": "replace", "path": "/spec/replicas", "value": 2})
    await register(harness, MUTATING, "m", hook(server, "/m", rule("deployments/scale", group="apps")))
    assert (await harness.patch(f"{APPS}/deployments/d/scale", {"spec": {"replicas": 9}})).json["spec"] == {
        "replicas": 2
    }
    assert server.requests("/m")[0]["object"]["kind"] == "Scale"


async def test_custom_objects_and_their_versions(harness: CustomResourceHarness, server: WebhookServer) -> None:
    await harness.define(version("v1"), version("v2", storage=False))
    server.answers["/m"] = patch({"op": "add", "path": "/spec/b", "value": 2})
    only_v2 = {**rule("foos", group="example.com"), "apiVersions": ["v2"]}
    await register(harness, MUTATING, "m", hook(server, "/m", only_v2))
    made = await harness.make("/apis/example.com/v1/namespaces/default/foos", foo(spec={"a": 1}))
    assert (made["apiVersion"], made["spec"]) == ("example.com/v1", {"a": 1, "b": 2})
    request = server.requests("/m")[0]
    assert (request["object"]["apiVersion"], request["resource"]["version"]) == ("example.com/v2", "v2")
    assert request["requestResource"]["version"] == "v1"


# -- which are asked --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effects, status", [("None", 201), ("NoneOnDryRun", 201), ("Some", 400)])
async def test_dry_runs(harness: CustomResourceHarness, server: WebhookServer, effects: str, status: int) -> None:
    await register(harness, VALIDATING, "v", hook(server, "/v"))
    if effects == "Some":  # only stored webhooks may have side effects
        from setpoint.store.interface import Put

        entry = next(
            iter(harness.api.resources.caches["admissionregistration.k8s.io/validatingwebhookconfigurations/"].scan())
        )
        changed = entry.value.replace(b'"sideEffects":"None"', b'"sideEffects":"Some"')
        await harness.store.txn([Put(entry.key, changed, entry.revision)])
    else:
        await harness.patch(f"{VALIDATING}/v", {"webhooks": [hook(server, "/v", sideEffects=effects)]})
    reply = await harness.post(f"{MAPS}?dryRun=All", config())
    assert reply.status == status
    if status == 400:
        assert reply.message == 'admission webhook "v.example.com" does not support dry run'
        assert not server.asked
    else:
        assert server.requests("/v")[0]["dryRun"] is True
        assert server.requests("/v")[0]["options"]["dryRun"] == ["All"]


@pytest.mark.parametrize(
    "more, asked",
    [
        ({"matchConditions": [{"name": "a", "expression": "request.userInfo.username == 'admin'"}]}, True),
        ({"matchConditions": [{"name": "a", "expression": "object.data.k == 'w'"}]}, False),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"a": "b"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True),
        ({"rules": []}, False),
        ({"rules": [rule("configmaps", scope="Cluster")]}, False),
    ],
)
async def test_match_criteria(harness: CustomResourceHarness, server: WebhookServer, more: Any, asked: bool) -> None:
    await register(harness, VALIDATING, "v", hook(server, "/v", **more))
    assert (await harness.post(MAPS, config())).status == 201
    assert bool(server.asked) == asked


async def test_a_failing_match_condition_denies(harness: CustomResourceHarness, server: WebhookServer) -> None:
    conditions = [{"name": "a", "expression": "object.nothing == 1"}]
    await register(harness, VALIDATING, "v", hook(server, "/v", matchConditions=conditions))
    reply = await harness.post(MAPS, config())
    text = "expression 'object.nothing == 1' resulted in error: no such key: nothing"
    assert (reply.status, reply.message) == (403, f'configmaps "c" is forbidden: {text}')


async def test_webhook_configurations_are_exempt(harness: CustomResourceHarness, server: WebhookServer) -> None:
    server.answers["/v"] = deny()
    everything = {**rule("*/*", operations=("*",)), "apiGroups": ["*"]}
    await register(harness, VALIDATING, "v", hook(server, "/v", everything))
    await register(harness, MUTATING, "m", hook(server, "/v", everything))
    assert (await harness.post(MAPS, config())).status == 400
    assert (await harness.delete(MUTATING)).status == 200
    assert (await harness.delete(f"{VALIDATING}/v")).status == 200
    assert (await harness.post(MAPS, config())).status == 201
    assert len(server.asked) == 1


async def test_connect_requests_are_reviewed(harness: CustomResourceHarness, server: WebhookServer) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await harness.make(f"{CORE}/pods", pod)
    server.answers["/v"] = deny(message="not here", code=403)
    await register(harness, VALIDATING, "v", hook(server, "/v", rule("pods/*", operations=("CONNECT",))))
    reply = await harness.post(f"{CORE}/pods/p/exec?command=ls&command=-l&container=c&stdin=1&stdout=1", None)
    assert reply.message == 'admission webhook "v.example.com" denied the request: not here'
    request = server.requests("/v")[0]
    assert request["object"] == {
        "kind": "PodExecOptions",
        "apiVersion": "v1",
        "stdin": True,
        "stdout": True,
        "container": "c",
        "command": ["ls", "-l"],
    }
    assert (request["operation"], request["subResource"], request["options"]) == ("CONNECT", "exec", None)
    assert (await harness.get(f"{CORE}/pods/p/proxy/x")).status == 403
    assert (await harness.get(f"{CORE}/pods/p/log")).status != 403


async def test_deletecollection_reviews_each_object(harness: CustomResourceHarness, server: WebhookServer) -> None:
    for name in "ab":
        await harness.make(MAPS, config(name))
    await register(harness, VALIDATING, "v", hook(server, "/v", rule("configmaps", operations=("DELETE",))))
    assert (await harness.delete(MAPS)).status == 200
    requests = server.requests("/v")
    assert sorted(request["oldObject"]["metadata"]["name"] for request in requests) == ["a", "b"]
    assert not any("name" in request for request in requests)


async def test_an_eviction_is_reviewed_once(harness: CustomResourceHarness, server: WebhookServer) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await harness.make(f"{CORE}/pods", pod)
    await register(harness, VALIDATING, "v", hook(server, "/v", rule("pods", "pods/eviction", operations=("*",))))
    order = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    evict = {**order, "deleteOptions": {"dryRun": ["All"]}}
    assert (await harness.post(f"{CORE}/pods/p/eviction", evict)).status == 201
    (request,) = server.requests("/v")
    assert (request["operation"], request["dryRun"], request["kind"]["kind"]) == ("CREATE", False, "Eviction")
    assert request["object"]["metadata"]["namespace"] == "default"


async def test_generated_names_are_unknown_to_mutating_webhooks(
    harness: CustomResourceHarness, server: WebhookServer
) -> None:
    await register(harness, MUTATING, "m", hook(server, "/m"))
    await register(harness, VALIDATING, "v", hook(server, "/v"))
    made = await harness.make(MAPS, {"metadata": {"generateName": "gen-"}})
    assert "name" not in server.requests("/m")[0]
    assert server.requests("/v")[0]["name"] == made["metadata"]["name"]


NODE = {"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"podCIDR": "10.1.0.0/24"}}
NODE_STATUS = {"status": {"capacity": {"cpu": "1"}, "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}
LABELLED = {"metadata": {"labels": {"a": "c"}}}
PORTS = {"spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}


@pytest.mark.parametrize(
    ("group", "path", "made", "before", "subresource", "change"),
    [
        ("", "/api/v1/nodes", NODE, NODE_STATUS, "", {**LABELLED, "spec": {"unschedulable": True}}),
        ("", "/api/v1/nodes", NODE, NODE_STATUS, "/status", {"status": {"capacity": {"cpu": "2"}}, **LABELLED}),
        ("", f"{CORE}/services", {"metadata": {"name": "n"}, **PORTS}, {}, "", {"spec": {"selector": {"a": "c"}}}),
        ("", "/api/v1/namespaces", {"metadata": {"name": "n"}}, {}, "", LABELLED),
        ("", f"{CORE}/secrets", {"metadata": {"name": "n"}, "stringData": {"k": "v"}}, {}, "", LABELLED),
        ("apps", f"{APPS}/deployments", deployment("n", 1), {"status": {"replicas": 1}}, "", {"spec": {"replicas": 3}}),
        ("apps", f"{APPS}/deployments", deployment("n", 1), {}, "/status", {"status": {"replicas": 2}}),
    ],
    ids=["nodes", "nodes/status", "services", "namespaces", "secrets", "deployments", "deployments/status"],
)
@pytest.mark.parametrize("method", ["PUT", "PATCH", "apply"])
async def test_the_old_object_is_the_stored_one_in_every_field(
    harness: CustomResourceHarness,
    server: WebhookServer,
    group: str,
    path: str,
    made: Any,
    before: Any,
    subresource: str,
    change: dict[str, Any],
    method: str,
) -> None:
    """The old object has all stored fields, also of nodes and subresources (CVE-2021-25735)."""
    await harness.make(path, made)
    if before:
        assert (await harness.patch(f"{path}/n/status", before)).status == 200
    plural = path.rpartition("/")[2]
    await register(harness, VALIDATING, "v", hook(server, "/v", rule(plural + subresource, group=group)))
    stored = (await harness.get(f"{path}/n")).json
    where = f"{path}/n{subresource}"
    if method == "PATCH":
        reply = await harness.patch(where, change)
    elif method == "apply":
        named = {**change, "metadata": {**change.get("metadata", {}), "name": "n"}}
        typed = {"apiVersion": stored["apiVersion"], "kind": stored["kind"], **named}
        reply = await harness.patch(f"{where}?fieldManager=m&force=true", typed, "application/apply-patch+yaml")
    else:
        merged = {key: {**stored.get(key, {}), **value} for key, value in change.items()}
        reply = await harness.put(where, {**stored, **merged})
    assert reply.status == 200, reply.body
    (request,) = server.requests("/v")
    assert request["oldObject"] == stored
    sent, result = request["object"], reply.json
    for written in (sent, result):
        written["metadata"].pop("resourceVersion"), written["metadata"].pop("managedFields")
    assert sent == result and sent != stored
