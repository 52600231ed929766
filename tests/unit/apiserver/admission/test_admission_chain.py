"""The admission chain of a whole server, over the watch caches, with a slow store."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import pytest
from server_harness import ServerHarness

from setpoint.cluster.config import ConfigError

CORE = "/api/v1/namespaces/default"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "img:1"}], **spec}}


async def test_concurrent_creates_never_exceed_a_quota(contended_harness: ServerHarness) -> None:
    await contended_harness.post(
        f"{CORE}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "10"}}}
    )
    counted = {"status": {"hard": {"pods": "10"}, "used": {"pods": "0"}}}
    await contended_harness.patch(f"{CORE}/resourcequotas/q/status", counted)
    replies = await asyncio.gather(*(contended_harness.post(f"{CORE}/pods", pod(f"p{n}")) for n in range(25)))
    assert sorted(reply.status for reply in replies) == [201] * 10 + [403] * 15
    quota = (await contended_harness.get(f"{CORE}/resourcequotas/q")).json
    assert quota["status"]["used"] == {"pods": "10"}
    assert quota["spec"] == {"hard": {"pods": "10"}}
    refusal = next(reply for reply in replies if reply.status == 403).json
    assert "exceeded quota: q, requested: pods=1, used: pods=10, limited: pods=10" in refusal["message"]


async def test_64_creators_never_get_more_than_quota_and_limits_allow(contended_harness: ServerHarness) -> None:
    """Defaults of a LimitRange count for the quota; denied objects do not."""
    harness, hard = contended_harness, {"pods": "100", "requests.cpu": "4", "limits.memory": "10Gi"}
    limits = [
        {
            "type": "Container",
            "default": {"cpu": "200m", "memory": "64Mi"},
            "defaultRequest": {"cpu": "100m"},
            "max": {"cpu": "1"},
        }
    ]
    await harness.make(f"{CORE}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})
    await harness.make(f"{CORE}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    await harness.patch(f"{CORE}/resourcequotas/q/status", {"status": status})
    most, pods = 0, harness.api.resources.caches["core/pods/"]
    refusals: Counter[str] = Counter()

    async def creator(number: int) -> int:
        nonlocal most
        made = 0
        for turn in range(2):
            name = f"p-{number}-{turn}"
            greedy = {"resources": {"limits": {"cpu": "2"}}}
            more = {"containers": [{"name": "c", "image": "img:1", **(greedy if (number + turn) % 8 == 0 else {})}]}
            reply = await harness.post(f"{CORE}/pods", pod(name, **more))
            most = max(most, len(pods))
            if reply.status == 201:
                made += 1
                assert reply.json["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "100m", "memory": "64Mi"}
            else:
                assert reply.status == 403, reply.body
                refusals["limit" if "maximum cpu usage per Container is 1" in reply.message else "quota"] += 1
        return made

    created = sum(await asyncio.gather(*(creator(number) for number in range(64))))
    assert (created, len(pods), most) == (40, 40, 40)
    used = (await harness.get(f"{CORE}/resourcequotas/q")).json["status"]["used"]
    assert used == {"pods": "40", "requests.cpu": "4", "limits.memory": "2560Mi"}
    assert refusals == {"limit": 16, "quota": 72}


async def test_values_from_other_objects_are_copied(harness: ServerHarness) -> None:
    scheduling = {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]}
    runtime = {"metadata": {"name": "vm"}, "handler": "h", "overhead": {"podFixed": {"cpu": "1m"}}}
    await harness.post("/apis/node.k8s.io/v1/runtimeclasses", {**runtime, "scheduling": scheduling})
    limits = [{"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}]
    await harness.post(f"{CORE}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})
    made = await harness.post(f"{CORE}/pods", pod("p", runtimeClassName="vm"))
    assert made.status == 201, made.body
    spec = made.json["spec"]
    assert spec["overhead"] == {"cpu": "1m"}
    assert spec["containers"][0]["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}
    # The mutation detector of the harness checks that the class and the limits are still what was stored.
    assert (await harness.patch(f"{CORE}/pods/p", {"metadata": {"labels": {"x": "y"}}})).status == 200


async def test_a_pod_waits_for_its_account() -> None:
    harness = await ServerHarness.open(disable_admission_plugins=[])
    try:
        create = asyncio.ensure_future(harness.post(f"{CORE}/pods", pod("p")))
        await harness.clock.advance(0.05)
        assert not create.done()
        await harness.post(f"{CORE}/serviceaccounts", {"metadata": {"name": "default"}})
        await harness.clock.advance(0.5)
        reply = await create
        assert reply.status == 201, reply.body
        assert reply.json["spec"]["volumes"][0]["name"].startswith("kube-api-access-")
    finally:
        await harness.close()


async def test_an_unknown_plugin_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r'^enable-admission-plugins plugin "Nope" is unknown$'):
        await ServerHarness.open(enable_admission_plugins=["Nope"])
    message = "[PodSecurity] in enable-admission-plugins and disable-admission-plugins overlapped"
    with pytest.raises(ConfigError, match=re.escape(f'[disable-admission-plugins plugin "No" is unknown, {message}]')):
        await ServerHarness.open(
            enable_admission_plugins=["PodSecurity"], disable_admission_plugins=["No", "PodSecurity"]
        )


async def test_system_namespaces_cannot_be_deleted(harness: ServerHarness) -> None:
    reply = await harness.delete("/api/v1/namespaces/default")
    assert reply.status == 403
    assert reply.json["message"] == 'namespaces "default" is forbidden: this namespace may not be deleted'


async def test_default_toleration_seconds_are_configurable() -> None:
    harness = await ServerHarness.open(default_not_ready_toleration_seconds=7, default_unreachable_toleration_seconds=9)
    spec = {"containers": [{"name": "c", "image": "i"}]}
    pod = await harness.make("/api/v1/namespaces/default/pods", {"metadata": {"name": "x"}, "spec": spec})
    assert [each["tolerationSeconds"] for each in pod["spec"]["tolerations"]] == [7, 9]
    await harness.close()
