"""Malicious paths, queries and headers."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from minimal_objects import STORED, collection
from server_harness import LIMITED_TOKEN, MERGE_PATCH, Reply, ServerHarness, peak_memory

from setpoint.kinds.catalog import RESOURCES

CORE = "/api/v1"
CONFIGMAPS = f"{CORE}/namespaces/default/configmaps"


def is_refusal(reply: Reply, *codes: int) -> bool:
    if reply.status not in codes:
        return False
    if reply.header("content-type").startswith("text/plain"):
        return reply.status in (404, 400)
    return bool(reply.json["kind"] == "Status" and reply.json["code"] == reply.status)


@pytest.fixture
async def secretive(harness: ServerHarness) -> ServerHarness:
    """Something to find for those who get where they should not."""
    for namespace in ("default", "other"):
        await harness.make(
            f"{CORE}/namespaces/{namespace}/secrets", {"metadata": {"name": "s"}, "stringData": {"k": "hush"}}
        )
        await harness.make(f"{CORE}/namespaces/{namespace}/configmaps", {"metadata": {"name": "c"}})
    return harness


PATHS = [
    "/..",
    "/../secrets",
    "/../secrets/s",
    "/%2e%2e/secrets",
    "/%2e%2e/secrets/s",
    "/%2E%2E%2Fsecrets%2Fs",
    "/.",
    "/%2e",
    "/..%2f..%2fother%2fsecrets%2fs",
    "//c",
    "/c%00",
    "/%00",
    "/c%2fstatus",
    "/c/status",
    "/c/zz",
    "/c/zz/yy",
    "/%ff",
    "/%zz",
    "/%",
    "/%252e%252e",
    "/a%25b",
    "/c;x=y",
    "/c%3fx",
    "/c%23x",
    "/\u00e9",
    "/c%0d%0aSet-Cookie:%20x",
    "/" + "a" * 300_000,
    "/.." * 50_000,
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path[:40])
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
async def test_paths_cannot_escape_their_resource(secretive: ServerHarness, path: str, method: str) -> None:
    """CVE-2022-3162."""
    before = secretive.store.revision
    body = None if method in ("GET", "DELETE") else b'{"metadata":{"labels":{"x":"y"}}}'
    content = MERGE_PATCH if method == "PATCH" else "application/json"
    reply = await secretive.request(method, CONFIGMAPS + path, body, content)
    assert is_refusal(reply, 400, 404, 405), (reply.status, reply.body[:200])
    assert b"hush" not in reply.body and b"aHVzaA" not in reply.body
    assert secretive.store.revision == before


@pytest.mark.parametrize(
    "path",
    [
        "//api/v1/secrets",
        "/api//v1/secrets",
        "/api/v1//secrets",
        "/apis//v1/secrets",
        "/api/v1/namespaces//secrets",
        "/api/v1/namespaces/../secrets",
        "/api/v1/namespaces/%2e%2e/secrets",
        "/api/v1/namespaces/./secrets",
        "/API/v1/secrets",
        "/api/V1/secrets",
        "/api/v1/Secrets",
        "/api/v1/secret",
        "/api/v1/namespaces/default/secret",
        "/api/v1/po",
        "/api/v1/pod",
        "/api/v1/podtemplate",
        "/apis/core/v1/secrets",
        "/apis/v1/secrets",
        "/api/v2/secrets",
        "/apis/apps/v1/secrets",
        "/apis/apps/v1/pods",
        "/api/v1/deployments",
        "/api/v1/secrets/s",
        "/../api/v1/secrets",
        "/%2e%2e/api/v1/secrets",
        "/metrics/../api/v1/secrets",
        "/api/v1/namespaces/default/secrets/../../other/secrets",
        "/a" * 2000,
    ],
    ids=lambda path: path[:60],
)
async def test_encoded_paths_are_not_equivalent(secretive: ServerHarness, path: str) -> None:
    reply = await secretive.get(path)
    assert is_refusal(reply, 400, 404), (reply.status, reply.body[:200])


async def test_plurals_with_a_common_prefix_are_distinct(harness: ServerHarness) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    await harness.make(
        f"{CORE}/namespaces/default/podtemplates", {"metadata": {"name": "x"}, "template": {"spec": spec}}
    )
    assert (await harness.get(f"{CORE}/pods")).json["items"] == []
    assert (await harness.get(f"{CORE}/namespaces/default/pods/x")).status == 404
    await harness.make(f"{CORE}/namespaces", {"metadata": {"name": "default-2"}})
    await harness.make(f"{CORE}/namespaces/default-2/configmaps", {"metadata": {"name": "x"}})
    assert (await harness.get(CONFIGMAPS)).json["items"] == []


async def test_the_scope_is_enforced_for_every_kind_and_verb(harness: ServerHarness) -> None:
    """CVE-2019-11247: what is cluster-scoped has no namespaced path, and the other way round."""
    before = harness.store.revision
    for resource in RESOURCES:
        prefix = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        if resource.namespaced:
            paths = [f"{prefix}/{resource.plural}/x"]
        else:
            paths = [
                f"{prefix}/namespaces/default/{resource.plural}",
                f"{prefix}/namespaces/default/{resource.plural}/x",
            ]
            paths.append(f"{prefix}/namespaces/default/{resource.plural}/default")
        for path in paths:
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
                body = b'{"metadata":{"name":"x"}}' if method in ("POST", "PUT", "PATCH") else None
                content = MERGE_PATCH if method == "PATCH" else "application/json"
                reply = await harness.request(method, path, body, content)
                assert is_refusal(reply, 404, 405), (method, path, reply.status, reply.body[:200])
            reply = await harness.get(f"{path}?watch=1")
            assert is_refusal(reply, 404, 405), (path, reply.status)
    for resource in STORED:
        if resource.namespaced:
            path = collection(resource).replace("/namespaces/default", "")
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                reply = await harness.request(method, path, b"{}")
                assert is_refusal(reply, 405), (method, path, reply.status)
    assert harness.store.revision == before


def token(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


_V = "meta.k8s.io/v1"
_BAD_REVISIONS: tuple[Any, ...] = (0, "1", 1.5, True, None, 2**70, [], {})
TOKENS = [
    "zz",
    "%00",
    "a",
    "e30",
    "W10",
    "bnVsbA",
    "MQ",
    "A" * 100_000,
    token({"v": "x", "rv": 1, "start": "a"}),
    *(
        token({"v": _V, "rv": 5, "start": start})
        for start in (
            "../secrets/default/s",
            "..",
            "a/../b",
            "./a",
            "a//b",
            "/../x",
            "",
            1,
            ["a"],
            None,
            {"a": 1},
            "a/",
            "//",
        )
    ),
    *(token({"v": _V, "rv": rv, "start": "a"}) for rv in _BAD_REVISIONS),
]


@pytest.mark.parametrize("value", TOKENS, ids=lambda value: value[:60])
async def test_crafted_continue_tokens(secretive: ServerHarness, value: str) -> None:
    reply = await secretive.get(f"{CONFIGMAPS}?limit=1&continue={value}")
    assert is_refusal(reply, 400), (reply.status, reply.body[:200])


@pytest.mark.parametrize("start", ["\x00", "~", "zzz", "/a", "..a", "a\x00b", "\U0010ffff", "default/s"])
async def test_continue_tokens_cannot_leave_their_list(secretive: ServerHarness, start: str) -> None:
    """Whatever the place, only what belongs to the list comes."""
    value = token({"v": _V, "rv": secretive.store.revision, "start": start})
    for path, allowed in ((CONFIGMAPS, {"default"}), (f"{CORE}/configmaps", {"default", "other"})):
        reply = await secretive.get(f"{path}?continue={value}")
        assert reply.status == 200, reply.body
        assert reply.json["kind"] == "ConfigMapList"
        assert {item["metadata"]["namespace"] for item in reply.json["items"]} <= allowed
        assert all("stringData" not in item and item["metadata"]["name"] == "c" for item in reply.json["items"])


QUERIES: list[tuple[str, tuple[int, ...]]] = [
    ("limit=x", (400,)),
    ("limit=", (400,)),
    ("limit=1.5", (400,)),
    ("limit=" + "9" * 5000, (400,)),
    ("limit=-1", (200,)),
    ("limit=9223372036854775807", (200,)),
    ("timeoutSeconds=x", (400,)),
    ("timeoutSeconds=-1", (200,)),
    ("resourceVersion=x", (400,)),
    ("resourceVersion=-1", (400,)),
    ("resourceVersion=" + "9" * 5000, (400,)),
    ("resourceVersion=0x1", (400,)),
    ("resourceVersion=%00", (400,)),
    ("resourceVersion=%D9%A1", (400,)),
    ("resourceVersionMatch=zz", (422,)),
    ("resourceVersionMatch=Exact", (422,)),
    ("sendInitialEvents=1", (422,)),
    ("fieldSelector=zz%3D1", (400,)),
    ("fieldSelector=metadata.name", (400,)),
    ("fieldSelector=a%5C", (400,)),
    ("labelSelector=a+in", (400,)),
    ("labelSelector=a+in+(", (400,)),
    ("labelSelector=" + "(" * 300_000, (400,)),
    ("labelSelector=" + "!" * 300_000, (400,)),
    ("labelSelector=" + "a" * 1_000_000, (400,)),
    ("labelSelector=" + "a%3Db," * 40_000, (200, 400)),
    ("labelSelector=a+in+(" + "b," * 120_000 + ")", (200, 400)),
    ("fieldSelector=" + "metadata.name%3Db," * 20_000, (200, 400)),
    ("fieldSelector=" + "%5C" * 300_000, (400,)),
    ("&" * 500_000, (200,)),
    ("&".join(f"k{i}=v" for i in range(9000)), (200,)),
    ("a=b&" * 100_000, (200,)),
    ("zz=1&zz&=&%zz=1&;", (200,)),
    ("pretty=" + "x" * 100_000, (200,)),
    ("watch=1&timeoutSeconds=x", (400,)),
    ("watch=1&resourceVersion=x", (400, 500)),
    ("watch=1&resourceVersionMatch=Exact", (422,)),
    ("watch=1&sendInitialEvents=true", (422,)),
    ("watch=1&continue=x", (422,)),
    ("watch=1&fieldSelector=zz%3D1", (400,)),
]


@pytest.mark.parametrize(("query", "codes"), QUERIES, ids=lambda value: str(value)[:50])
async def test_invalid_queries(harness: ServerHarness, query: str, codes: tuple[int, ...]) -> None:
    await harness.make(CONFIGMAPS, {"metadata": {"name": "c", "labels": {"a": "b"}}})
    started = time.process_time()
    reply = await harness.get(f"{CONFIGMAPS}?{query}")
    assert time.process_time() - started < 3
    assert reply.status in codes, (reply.status, reply.body[:300])
    assert reply.status == 200 or reply.json["kind"] == "Status"


@pytest.mark.parametrize(
    "query", ["fieldManager=%00", "fieldManager=" + "a" * 129, "fieldValidation=x", "dryRun=x", "dryRun=All&dryRun=x"]
)
async def test_invalid_options_of_writes(harness: ServerHarness, query: str) -> None:
    await harness.make(CONFIGMAPS, {"metadata": {"name": "c"}})
    before = harness.store.revision
    assert is_refusal(await harness.post(f"{CONFIGMAPS}?{query}", {"metadata": {"name": "d"}}), 422)
    assert is_refusal(
        await harness.put(f"{CONFIGMAPS}/c?{query}", {"metadata": {"name": "c"}, "data": {"a": "b"}}), 422
    )
    assert is_refusal(await harness.patch(f"{CONFIGMAPS}/c?{query}", {"data": {"a": "b"}}), 422)
    if "dryRun" in query:
        assert is_refusal(await harness.delete(f"{CONFIGMAPS}/c?{query}"), 422)
    assert harness.store.revision == before


async def test_memory_of_rejected_requests_is_bounded(harness: ServerHarness) -> None:
    """Paths, selectors, headers and names, all long and all different: none of them is kept."""
    await harness.get(CONFIGMAPS)
    for number in range(50):
        if number == 10:
            before = peak_memory()
        long = f"{number:06d}" * 20_000
        await harness.get(f"{CONFIGMAPS}/{long}", headers={"accept": "x" + long, "user-agent": long})
        await harness.get(f"{CONFIGMAPS}?labelSelector=a{long}&fieldSelector={long}&x{long}=1")
        await harness.post(CONFIGMAPS, {"metadata": {"name": long, "labels": {long: long}, "finalizers": [long]}})
    assert peak_memory() - before < 15 * 2**20


async def test_unknown_methods(harness: ServerHarness) -> None:
    for method in ("FOO", "TRACE", "CONNECT", "OPTIONS", "HEAD"):
        for path in (CONFIGMAPS, f"{CONFIGMAPS}/c", "/api", "/version"):
            reply = await harness.request(method, path)
            assert reply.status in (200, 404, 405), (method, path, reply.status, reply.body[:200])
            if method not in ("HEAD", "OPTIONS"):
                assert reply.status in (404, 405) or path in ("/api", "/version"), (method, path, reply.status)


IMPERSONATION: list[tuple[dict[str, str], tuple[int, ...]]] = [
    ({"impersonate-user": "admin"}, (403,)),
    ({"impersonate-user": "x", "impersonate-group": "system:masters"}, (403,)),
    ({"impersonate-group": "system:masters"}, (400, 403, 500)),
    ({"impersonate-uid": "admin-uid"}, (400, 403, 500)),
    ({"impersonate-extra-scopes": "all"}, (400, 403, 500)),
    ({"impersonate-user": ""}, (403,)),
    ({"impersonate-user": "limited", "impersonate-uid": "admin-uid"}, (403,)),
    ({"impersonate-user": "system:serviceaccount:kube-system:x"}, (403,)),
    ({"impersonate-user": "system:apiserver"}, (403,)),
    ({"impersonate-user": "limited", "impersonate-extra-%zz": "x"}, (403,)),
    ({"x-remote-user": "admin"}, (403,)),
    ({"x-remote-user": "admin", "x-remote-group": "system:masters"}, (403,)),
]


@pytest.mark.parametrize(("headers", "codes"), IMPERSONATION, ids=lambda value: str(value)[:60])
async def test_identity_headers_of_clients_are_ignored(
    harness: ServerHarness, headers: dict[str, str], codes: tuple[int, ...]
) -> None:
    for token_ in (LIMITED_TOKEN, ""):
        reply = await harness.get(f"{CORE}/secrets", headers=headers, token=token_)
        assert is_refusal(reply, *codes), (reply.status, reply.body)


async def test_wrong_credentials_are_not_anonymous(harness: ServerHarness) -> None:
    for value in ("Bearer nope", "bearer nope", "Bearer é", "Bearer \x00", "Bearer " + "a" * 100_000):
        reply = await harness.get("/version", headers={"authorization": value})
        assert is_refusal(reply, 401), (value[:20], reply.status)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/healthz/", 404),
        ("GET", "/livez/", 404),
        ("GET", "/readyz//", 404),
        ("GET", "/version/", 200),
        ("HEAD", "/version", 405),
        ("HEAD", "/healthz", 200),
        ("GET", "/metrics", 200),
        ("GET", "/metrics/", 404),
        ("GET", "/apis/", 200),
        ("GET", "/apis//", 404),
        ("HEAD", "/apis", 200),
        ("POST", "/apis/apps", 200),
        ("HEAD", "/api/v1", 405),
        ("POST", "/apis/apps/v1", 405),
        ("HEAD", "/api/v1/namespaces/default/status", 405),
        ("GET", "/api/v1/namespaces/default/pods/a%", 400),
        ("GET", "/api/v1/namespaces/default/pods/a%2", 400),
        ("GET", "/api/v1/namespaces/default/", 200),
        ("DELETE", "/api/v1/namespaces/other//status", 404),
        ("GET", "/api/v1/namespaces/default/services/s/proxy/", 503),
        ("GET", "/api/v1/namespaces/default/services/s:80/proxy/", 404),
        ("POST", "/api/v1/namespaces/default/pods/a/exec?command=ls&dryRun=All", 400),
        ("POST", "/api/v1/nodes/n/proxy/run?dryRun=All", 400),
        ("GET", "/api/v1/nodes/n/proxy/run", 404),
    ],
)
async def test_paths_that_are_nearly_valid(harness: ServerHarness, method: str, path: str, status: int) -> None:
    assert (await harness.request(method, path)).status == status


async def test_an_empty_segment_does_not_end_a_path(harness: ServerHarness) -> None:
    await harness.make(CONFIGMAPS, {"metadata": {"name": "kept"}})
    for method in ("GET", "DELETE"):
        assert (await harness.request(method, f"{CONFIGMAPS}/kept//status")).status == 404
    assert (await harness.get(f"{CONFIGMAPS}/kept")).status == 200


async def test_malformed_paths_are_rejected_before_authentication(harness: ServerHarness) -> None:
    reply = await harness.get("/api/v1/namespaces/%zz/pods", token="nobodys")
    assert (reply.status, reply.body) == (400, b"400 Bad Request")
