"""The configuration of plugins by `--admission-control-config-file`, through the API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from server_harness import LIMITED_TOKEN, ServerHarness

from setpoint.cluster.config import ConfigError
from setpoint.meta.objects import Obj

CORE = "/api/v1/namespaces/default"
Opening = Callable[..., AbstractAsyncContextManager[ServerHarness]]
SECURITY = {"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration"}
EVENTS = {"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration"}
QUOTA = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration"}
TOLERATIONS = {"apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1", "kind": "Configuration"}


def admission(**plugins: Obj) -> Obj:
    listed = [{"name": name, "configuration": configuration} for name, configuration in plugins.items()]
    return {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": listed}


@pytest.fixture
def opening(tmp_path: Path, quiet_log: pytest.LogCaptureFixture) -> Opening:
    @asynccontextmanager
    async def opened(configuration: Any, **settings: Any) -> AsyncIterator[ServerHarness]:
        file = tmp_path / "admission.yaml"
        file.write_text(configuration if isinstance(configuration, str) else json.dumps(configuration))
        harness = await ServerHarness.open(admission_control_config_file=str(file), **settings)
        yield harness
        await harness.close()

    return opened


def pod(name: str = "p", **spec: Any) -> Obj:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


PRIVILEGED: Obj = {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True}}]}


async def test_pod_security_has_defaults_and_exemptions(opening: Opening) -> None:
    configuration = SECURITY | {
        "defaults": {"enforce": "baseline", "enforce-version": "v1.30", "warn": "restricted"},
        "exemptions": {"usernames": ["limited"], "namespaces": ["free"], "runtimeClasses": ["sandbox"]},
    }
    async with opening(admission(PodSecurity=configuration)) as harness:
        reply = await harness.post(f"{CORE}/pods", pod(**PRIVILEGED))
        assert reply.status == 403 and 'violates PodSecurity "baseline:v1.30": privileged (' in reply.message
        reply = await harness.post(f"{CORE}/pods", pod())
        assert reply.status == 201 and 'would violate PodSecurity \\"restricted:latest\\"' in reply.warnings[0]
        # Exempt are users, namespaces and classes of runtimes.
        everybody = {"kind": "ClusterRole", "name": "all", "apiGroup": "rbac.authorization.k8s.io"}
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
        await harness.make(f"{rbac}/clusterroles", {"metadata": {"name": "all"}, "rules": [rule]})
        user = {"kind": "User", "name": "limited", "apiGroup": "rbac.authorization.k8s.io"}
        bound = {"metadata": {"name": "all"}, "roleRef": everybody, "subjects": [user]}
        await harness.make(f"{rbac}/clusterrolebindings", bound)
        reply = await harness.post(f"{CORE}/pods", pod("of-limited", **PRIVILEGED), token=LIMITED_TOKEN)
        assert (reply.status, reply.warnings) == (201, [])
        reply = await harness.post("/api/v1/namespaces", {"metadata": {"name": "free"}})
        assert (reply.status, reply.warnings) == (201, [])
        reply = await harness.post("/api/v1/namespaces/free/pods", pod(**PRIVILEGED))
        assert (reply.status, reply.warnings) == (201, [])
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        reply = await harness.patch("/api/v1/namespaces/free", {"metadata": {"labels": labels}})
        assert reply.warnings == [
            '299 - "namespace \\"free\\" is exempt from Pod Security, and the policy (enforce=restricted:v1.30) '
            'will be ignored"'
        ]
        await harness.make("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "sandbox"}, "handler": "h"})
        reply = await harness.post(f"{CORE}/pods", pod("boxed", runtimeClassName="sandbox", **PRIVILEGED))
        assert (reply.status, reply.warnings) == (201, [])
        # Labels have the last word where there are any.
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        await harness.patch("/api/v1/namespaces/other", {"metadata": {"labels": labels}})
        assert (await harness.post("/api/v1/namespaces/other/pods", pod(**PRIVILEGED))).status == 201


async def test_events_are_limited(opening: Opening) -> None:
    limits = [{"type": "Namespace", "qps": 1, "burst": 2}]
    async with opening(
        admission(EventRateLimit=EVENTS | {"limits": limits}), enable_admission_plugins=["EventRateLimit"]
    ) as harness:

        async def tell(number: int, namespace: str = "default") -> int:
            about = {"kind": "Pod", "name": "p", "namespace": namespace}
            event = {"metadata": {"name": f"e{number}"}, "involvedObject": about, "reason": "R", "message": "m"}
            return (await harness.post(f"/api/v1/namespaces/{namespace}/events", event)).status

        assert [await tell(number) for number in range(3)] == [201, 201, 429]
        assert await tell(9, "other") == 201
        await harness.clock.advance(1)
        assert [await tell(number) for number in range(3, 5)] == [201, 429]


async def test_node_selectors_of_namespaces(opening: Opening) -> None:
    configuration = """
podNodeSelectorPluginConfig:
  clusterDefaultNodeSelector: tier=plain
  default: tier=plain,zone=a
"""
    async with opening(configuration, enable_admission_plugins=["PodNodeSelector"]) as harness:
        made = await harness.make(f"{CORE}/pods", pod())
        assert made["spec"]["nodeSelector"] == {"tier": "plain"}
        for selector, why in (
            ({"tier": "gold"}, "pod node label selector conflicts with its namespace node label selector"),
            ({"zone": "b"}, "pod node label selector labels conflict with its namespace whitelist"),
            ({"disk": "ssd"}, "pod node label selector labels conflict with its namespace whitelist"),
        ):
            reply = await harness.post(f"{CORE}/pods", pod("q", nodeSelector=selector))
            assert (reply.status, reply.message) == (403, f'pods "q" is forbidden: {why}')
        assert (await harness.post(f"{CORE}/pods", pod("r", nodeSelector={"zone": "a"}))).status == 201
        await harness.make("/api/v1/namespaces/other/pods", pod(nodeSelector={"disk": "ssd"}))
        for text, why in (
            ("tier", "invalid selector: [tier]"),
            ("a=b=c", "invalid selector: [a b c]"),
            ("a b=c", '<nil>: Invalid value: "a b": name part must consist of '),
            ("a=b c", '[a]: Invalid value: "b c": a valid label must be an empty string or consist of '),
        ):
            notes = {"scheduler.alpha.kubernetes.io/node-selector": text}
            await harness.patch("/api/v1/namespaces/other", {"metadata": {"annotations": notes}})
            reply = await harness.post("/api/v1/namespaces/other/pods", pod("s"))
            assert (reply.status, reply.message[: len(why)]) == (500, why)


async def test_limited_resources_need_a_quota(opening: Opening) -> None:
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["vital"]}
    limited = [
        {"resource": "persistentvolumeclaims", "matchContains": [".storageclass.storage.k8s.io/requests.storage"]},
        {"resource": "pods", "matchScopes": [scope]},
    ]
    async with opening(admission(ResourceQuota=QUOTA | {"limitedResources": limited})) as harness:
        await harness.make(f"{CORE}/pods", pod())
        claim = {
            "metadata": {"name": "c"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "fast",
            },
        }
        reply = await harness.post(f"{CORE}/persistentvolumeclaims", claim)
        name = "fast.storageclass.storage.k8s.io/requests.storage"
        why = f"insufficient quota to consume: {name}"
        assert (reply.status, reply.message) == (403, f'persistentvolumeclaims "c" is forbidden: {why}')
        await harness.make(f"{CORE}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {name: "10Gi"}}})
        counted = {"status": {"hard": {name: "10Gi"}, "used": {name: "0"}}}
        await harness.patch(f"{CORE}/resourcequotas/q/status", counted)
        assert (await harness.post(f"{CORE}/persistentvolumeclaims", claim)).status == 201
        vital = {"metadata": {"name": "vital"}, "value": 10}
        await harness.make("/apis/scheduling.k8s.io/v1/priorityclasses", vital)
        reply = await harness.post(f"{CORE}/pods", pod("v", priorityClassName="vital"))
        assert reply.status == 500
        assert reply.message == "insufficient quota to match these scopes: [{PriorityClass In [vital]}]"
        spec = {"hard": {"pods": "5"}, "scopeSelector": {"matchExpressions": [scope]}}
        await harness.make(f"{CORE}/resourcequotas", {"metadata": {"name": "v"}, "spec": spec})
        counted = {"status": {"hard": {"pods": "5"}, "used": {"pods": "0"}}}
        await harness.patch(f"{CORE}/resourcequotas/v/status", counted)
        assert (await harness.post(f"{CORE}/pods", pod("v", priorityClassName="vital"))).status == 201


def toleration(key: str, effect: str = "NoSchedule", **more: Any) -> Obj:
    return {"key": key, "operator": "Exists", "effect": effect, **more}


async def test_default_and_allowed_tolerations(opening: Opening) -> None:
    configuration = TOLERATIONS | {"default": [toleration("a")], "whitelist": [toleration(key) for key in "ab"]}
    conflict = "pod tolerations (possibly merged with namespace default tolerations) conflict with its {} whitelist"
    async with opening(
        admission(PodTolerationRestriction=configuration),
        enable_admission_plugins=["PodTolerationRestriction"],
        disable_admission_plugins=["ServiceAccount", "DefaultTolerationSeconds"],
    ) as harness:
        made = await harness.make(f"{CORE}/pods", pod())
        assert made["spec"]["tolerations"] == [toleration("a")]
        reply = await harness.post(f"{CORE}/pods", pod("q", tolerations=[toleration("c")]))
        assert (reply.status, reply.message) == (500, conflict.format("cluster"))
        notes = {
            "scheduler.alpha.kubernetes.io/defaultTolerations": json.dumps([toleration("b")]),
            "scheduler.alpha.kubernetes.io/tolerationsWhitelist": json.dumps([toleration(key) for key in "bc"]),
        }
        await harness.patch("/api/v1/namespaces/default", {"metadata": {"annotations": notes}})
        made = await harness.make(f"{CORE}/pods", pod("q", tolerations=[toleration("c")]))
        assert made["spec"]["tolerations"] == [toleration("c"), toleration("b")]
        reply = await harness.post(f"{CORE}/pods", pod("r", tolerations=[toleration("a")]))
        assert (reply.status, reply.message) == (500, conflict.format("namespace"))
        # Pods that ask for something are let onto nodes that are short of memory.
        notes = dict.fromkeys(notes, "")
        await harness.patch("/api/v1/namespaces/default", {"metadata": {"annotations": notes}})
        spec = pod("s")
        spec["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        made = await harness.make(f"{CORE}/pods", spec)
        assert made["spec"]["tolerations"] == [toleration("node.kubernetes.io/memory-pressure")]
        notes = dict.fromkeys(notes, "{")
        await harness.patch("/api/v1/namespaces/default", {"metadata": {"annotations": notes}})
        reply = await harness.post(f"{CORE}/pods", pod("t"))
        assert (reply.status, reply.message) == (500, "unexpected end of JSON input")


async def test_a_separate_file_for_a_plugin(tmp_path: Path, opening: Opening) -> None:
    (tmp_path / "security.yaml").write_text(json.dumps(SECURITY | {"defaults": {"enforce": "restricted"}}))
    configuration = admission()
    configuration["plugins"] = [{"name": "PodSecurity", "path": "security.yaml"}]
    async with opening(configuration) as harness:
        assert (await harness.post(f"{CORE}/pods", pod())).status == 403


BAD_SECURITY = SECURITY | {
    "defaults": {"enforce": "strict", "warn-version": "1.30"},
    "exemptions": {"namespaces": ["A", "b", "b"], "usernames": [""]},
}


@pytest.mark.parametrize(
    ("configuration", "why"),
    [
        (
            admission(PodSecurity=BAD_SECURITY),
            'couldn\'t init admission plugin "PodSecurity": [defaults.enforce: Invalid value: "strict": must be one of '
            'privileged, baseline, restricted, defaults.warn-version: Invalid value: "1.30": must be "latest" or '
            '"v1.x", exemptions.namespaces[0]: Invalid value: "A": a lowercase RFC 1123 label must consist',
        ),
        (admission(PodSecurity=SECURITY | {"default": {}}), 'strict decoding error: unknown field "default"'),
        (admission(PodSecurity=QUOTA), 'no kind "ResourceQuotaConfiguration" is registered for version'),
        (admission(ResourceQuota=QUOTA | {"limitedResources": [{}]}), "limitedResources[0].resource: Required value"),
        ("kind: Pod\napiVersion: v1\n", 'no kind "Pod" is registered for version "v1"'),
        ("[", "yaml: line 1: did not find expected node content"),
        ("{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
    ],
    ids=["security", "unknown", "kind", "quota", "another", "broken", "cut off"],
)
async def test_invalid_files(opening: Opening, configuration: Any, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        async with opening(configuration):
            pass
    assert str(caught.value).startswith("--admission-control-config-file: ") and why in str(caught.value)


async def test_the_configuration_of_a_disabled_plugin_is_not_read(opening: Opening) -> None:
    configuration = admission(Unheard={"a": 1}, AlwaysAdmit={"b": 2})
    configuration["plugins"].append({"name": "PodNodeSelector", "path": "not-there.yaml"})
    async with opening(configuration) as harness:
        await harness.make(f"{CORE}/pods", pod())
    with pytest.raises(ConfigError, match=r"open .*/not-there.yaml: no such file or directory"):
        async with opening(configuration, enable_admission_plugins=["PodNodeSelector"]):
            pass


async def test_a_missing_file() -> None:
    with pytest.raises(ConfigError, match="unable to read admission control configuration from"):
        await ServerHarness.open(admission_control_config_file="/nowhere/at-all")


async def test_event_rate_limit_needs_a_configuration() -> None:
    with pytest.raises(ConfigError, match="limits: Invalid value: null: must not be empty"):
        await ServerHarness.open(enable_admission_plugins=["EventRateLimit"])
