"""The cost of a request before authorization does not depend on its size.

Work is counted in calls. A request is sent once with a short and once with a long value; the long one may take a few
calls more, but none for each part of what was sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from server_harness import JSON, ServerHarness
from step_count import counted_steps

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SHORT, LONG = 8, 60_000
SLACK = 1_000
"""Calls that the long request may take more than the short one: parts are looked at up to a fixed number."""

QUERIES: dict[str, Callable[[int], str]] = {
    "label keys": lambda n: "labelSelector=" + "a," * n + "a",
    "label pairs": lambda n: "labelSelector=" + "a=b," * n + "a=b",
    "label values": lambda n: "labelSelector=a+in+(" + "b," * n + "b)",
    "label parentheses": lambda n: "labelSelector=" + "(" * n,
    "label exclamation marks": lambda n: "labelSelector=" + "!" * n,
    "watch": lambda n: "watch=1&labelSelector=" + "a," * n + "a",
    "field terms": lambda n: "fieldSelector=" + "a=b," * n + "a=b",
    "field names": lambda n: "fieldSelector=" + "metadata.name=a," * n + "metadata.name=a",
    "field escapes": lambda n: "fieldSelector=metadata.name=" + "\\," * n,
    "percent escapes": lambda n: "labelSelector=" + "%61" * n,
    "continue token": lambda n: "continue=" + "A" * n,
    "timeout": lambda n: "timeout=" + "1s" * n,
    "revision": lambda n: "resourceVersion=" + "9" * n,
}
HEADERS: dict[str, Callable[[int], dict[str, str]]] = {
    "accept": lambda n: {"accept": "a/b," * n},
    "accept parameters": lambda n: {"accept": "a/b" + ";c=d" * n},
    "cookie": lambda n: {"cookie": "a=b; " * n},
    "token": lambda n: {"authorization": "Bearer " + "a" * n},
    "token parts": lambda n: {"authorization": "Bearer " + "a." * n},
    "claims": lambda n: {"authorization": f"Bearer eyJhbGciOiJSUzI1NiJ9.{'A' * (4 * n)}.AAAA"},
    "protocols": lambda n: {
        "upgrade": "websocket",
        "connection": "upgrade",
        "sec-websocket-protocol": "base64url.bearer.authorization.k8s.io.AAAA," + "a," * n,
    },
    "connection": lambda n: {
        "upgrade": "websocket",
        "connection": "a," * n + "upgrade",
        "sec-websocket-protocol": "base64url.bearer.authorization.k8s.io.AAAA,b",
    },
    "impersonated extra": lambda n: {"impersonate-user": "a", "impersonate-extra-" + "%61" * n: "x"},
    "impersonated user": lambda n: {"impersonate-user": "\N{BELL}" * n},
    "user agent": lambda n: {"user-agent": "\N{LATIN SMALL LETTER E WITH ACUTE}" * n},
}


async def steps_of(harness: ServerHarness, path: str, headers: dict[str, str], method: str = "GET") -> tuple[int, int]:
    with counted_steps() as steps:
        reply = await harness.request(method, path, headers=headers, token="")
    return reply.status, steps.count


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_long_queries_of_anonymous_clients_are_cheap(harness: ServerHarness, name: str, method: str) -> None:
    made = QUERIES[name]
    await steps_of(harness, f"{CONFIGMAPS}?{made(SHORT)}", {}, method)
    status, short = await steps_of(harness, f"{CONFIGMAPS}?{made(SHORT)}", {}, method)
    assert status == 403
    status, long = await steps_of(harness, f"{CONFIGMAPS}?{made(LONG)}", {}, method)
    assert status == (400 if name == "timeout" else 403)
    assert long < short + SLACK


@pytest.mark.parametrize("name", HEADERS)
async def test_long_headers_of_anonymous_clients_are_cheap(harness: ServerHarness, name: str) -> None:
    made = HEADERS[name]
    await steps_of(harness, CONFIGMAPS, made(SHORT))
    _, short = await steps_of(harness, CONFIGMAPS, made(SHORT))
    status, long = await steps_of(harness, CONFIGMAPS, made(LONG))
    assert status in (400, 401, 403)
    assert long < short + SLACK


async def test_long_paths_are_cheap(harness: ServerHarness) -> None:
    for unit in ("/a", "/..", "%61", "/%2e"):
        _, short = await steps_of(harness, "/api/v1/" + unit * SHORT, {})
        status, long = await steps_of(harness, "/api/v1/" + unit * 20_000, {})
        assert status == 403
        assert long < short + SLACK


async def test_a_long_selector_does_not_restrict_what_is_authorized(harness: ServerHarness) -> None:
    """Who may read one object may list it by its name; a selector that is not parsed names nothing."""
    rules = [{"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"]}]
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    await harness.make(f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": rules})
    subject = {"kind": "User", "name": "system:anonymous", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
    await harness.make(f"{rbac}/rolebindings", {"metadata": {"name": "r"}, "roleRef": reference, "subjects": [subject]})
    named = "fieldSelector=metadata.name=one"
    assert (await harness.get(f"{CONFIGMAPS}?{named}", token="")).status == 200
    assert (await harness.get(f"{CONFIGMAPS}?{named}{',metadata.name=one' * 1000}", token="")).status == 403
    assert (await harness.get(f"{CONFIGMAPS}?fieldSelector=metadata.name!=one", token="")).status == 403


async def test_bodies_are_not_decoded_before_authorization(harness: ServerHarness) -> None:
    with counted_steps() as short:
        await harness.request("POST", CONFIGMAPS, b"{}", JSON, token="")
    with counted_steps() as long:
        reply = await harness.request("POST", CONFIGMAPS, b"[" + b"[]," * 100_000 + b"[]]", JSON, token="")
    assert reply.status == 403
    assert long.count < short.count + SLACK
