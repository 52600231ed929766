from __future__ import annotations

from typing import Any

import orjson
import pytest
from server_harness import LIMITED_TOKEN, ServerHarness

BETA = "application/json;v=v1beta1;g=config.k8s.io;as="


async def _structured(harness: ServerHarness, page: str, kind: str, version: str = "v1beta1") -> tuple[Any, list[str]]:
    accept = f"application/json;v={version};g=config.k8s.io;as={kind}"
    reply = await harness.get(page, headers={"accept": accept})
    assert reply.status == 200, reply.body
    return orjson.loads(reply.body), reply.warnings


async def test_statusz_shows_version_and_uptime(harness: ServerHarness) -> None:
    await harness.clock.advance(3723)
    text = (await harness.get("/statusz")).body.decode()
    assert text.startswith("\nkube-apiserver statusz\nWarning: This endpoint is not meant to be machine parseable")
    assert "\nStarted: Thu Jan  1 00:00:00 UTC 2026\nUp: 1 hr 02 min 03 sec\n" in text
    assert "\nPaths: /flagz /healthz /livez /metrics /readyz /statusz /version\n" in text
    found, _ = await _structured(harness, "/statusz", "Statusz")
    assert (found["kind"], found["apiVersion"]) == ("Statusz", "config.k8s.io/v1beta1")
    assert (found["startTime"], found["uptimeSeconds"]) == ("2026-01-01T00:00:00Z", 3723)
    assert found["metadata"] == {"name": "kube-apiserver"} and found["emulationVersion"] == "1.37"


async def test_flagz_shows_the_flags(harness: ServerHarness) -> None:
    text = (await harness.get("/flagz", headers={"accept": "text/html, */*;q=0.5"})).body.decode()
    assert "\nauthorization-mode=[RBAC]\n" in text and "\nevent-ttl=1h0m0s\n" in text
    assert "\naudit-log-maxage=366\n" in text and "\noidc-username-claim=sub\n" in text
    found, warnings = await _structured(harness, "/flagz", "Flagz", "v1alpha1")
    assert found["flags"]["etcd-compaction-interval"] == "5m0s"
    assert "This version of the flagz endpoint is deprecated. Please use a newer version." in warnings[0]


@pytest.mark.parametrize("accept", ["application/json", BETA + "Other", "image/png"])
async def test_other_media_types_are_not_acceptable(harness: ServerHarness, accept: str) -> None:
    for page in ("/statusz", "/flagz"):
        reply = await harness.get(page, headers={"accept": accept})
        assert reply.status == 406
        wanted = "only the following media types are accepted: application/json, application/yaml, text/plain"
        assert reply.message == wanted


async def test_the_pages_require_permission(harness: ServerHarness) -> None:
    for page in ("/statusz", "/flagz", "/metrics/slis"):
        assert (await harness.get(page, token=LIMITED_TOKEN)).status == 403
        assert page in (await harness.get("/")).json["paths"]
