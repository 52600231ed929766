"""ImagePolicyWebhook, through the API."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from audit_harness import audit
from cryptography.x509 import load_der_x509_certificate
from image_policy_webhook import ImageHook, admission_file, judged, kubeconfig
from server_harness import EPOCH, STRATEGIC, ServerHarness

from setpoint.cluster.certificates import ensure_certificates, issue_client_certificate, server_context
from setpoint.cluster.config import ConfigError
from setpoint.meta.objects import Obj
from setpoint.system import SystemClock
from setpoint.wire.message import Request, Response
from setpoint.wire.server import Server

PODS = "/api/v1/namespaces/default/pods"
KIND = {"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview"}
JSON = ("content-type", "application/json")
PREFIX = "imagepolicywebhook.image-policy.k8s.io/"


def pod(name: str = "p", image: str = "a:1", **more: Any) -> Obj:
    return {"metadata": {"name": name, **more}, "spec": {"containers": [{"name": "c", "image": image}]}}


async def test_the_image_review(tmp_path: Path) -> None:
    async with judged(tmp_path, kubeConfigFile=kubeconfig(tmp_path / "k", token="sesame")) as (harness, hook):
        made = pod(
            annotations={"x.image-policy.k8s.io/break-glass": "yes", "other": "no", "image-policy.k8s.io/a": "b"}
        )
        made["spec"]["containers"].append({"name": "d", "image": "b:2"})
        made["spec"]["initContainers"] = [{"name": "i", "image": "init:1"}]
        await harness.make(PODS, made)
        (asked,) = hook.asked
        assert (asked.method, asked.path, asked.query) == ("POST", "/review", "timeout=30s")
        assert asked.headers["authorization"] == "Bearer sesame"
        assert orjson.loads(asked.body) == {
            **KIND,
            "metadata": {},
            "spec": {
                "containers": [{"image": "a:1"}, {"image": "b:2"}, {"image": "init:1"}],
                "annotations": {"x.image-policy.k8s.io/break-glass": "yes"},
                "namespace": "default",
            },
            "status": {"allowed": False},
        }
        # An update of a Pod is reviewed again; its status and other kinds are not.
        await harness.patch(f"{PODS}/p", {"metadata": {"annotations": {"x.image-policy.k8s.io/break-glass": None}}})
        assert len(hook.asked) == 2 and "annotations" not in hook.specs[1]
        assert (await harness.patch(f"{PODS}/p/status", {"status": {"message": "m"}})).status == 200
        await harness.make("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}})
        assert (await harness.delete(f"{PODS}/p?gracePeriodSeconds=0")).status == 200
        assert len(hook.asked) == 2


async def test_ephemeral_containers_are_reviewed_too(tmp_path: Path) -> None:
    """Ephemeral containers must not bypass the policy (CVE-2023-2727)."""
    async with judged(tmp_path) as (harness, hook):
        await harness.make(PODS, pod())
        hook.status = {"allowed": False, "reason": "not on the list"}
        added = {"spec": {"ephemeralContainers": [{"name": "e", "image": "debug:1"}]}}
        reply = await harness.patch(f"{PODS}/p/ephemeralcontainers", added, STRATEGIC)
        assert (reply.status, reply.message) == (
            403,
            'pods "p" is forbidden: image policy webhook backend denied one or more images: not on the list',
        )
        assert hook.specs[1] == {"containers": [{"image": "debug:1"}], "namespace": "default"}
        hook.status = {}
        changed = {"spec": {"containers": [{"name": "c", "image": "a:2"}]}}
        reply = await harness.patch(f"{PODS}/p", changed, STRATEGIC)
        assert reply.message == 'pods "p" is forbidden: one or more images rejected by webhook backend'
        assert (await harness.get(f"{PODS}/p")).json["spec"]["containers"][0]["image"] == "a:1"


async def test_answers_are_cached(tmp_path: Path) -> None:
    async with judged(tmp_path, allowTTL=60, denyTTL=5) as (harness, hook):
        for name in "abc":
            await harness.make(PODS, pod(name))
        assert len(hook.asked) == 1
        await harness.make("/api/v1/namespaces/other/pods", pod())
        assert len(hook.asked) == 2
        hook.status = {"allowed": False}
        await harness.clock.advance(59)
        await harness.make(PODS, pod("d"))
        await harness.clock.advance(2)
        assert [(await harness.post(PODS, pod("e"))).status for _ in range(3)] == [403] * 3
        assert len(hook.asked) == 3
        hook.status = {"allowed": True}
        await harness.clock.advance(6)
        await harness.make(PODS, pod("e"))


async def test_a_negative_ttl_disables_the_cache(tmp_path: Path) -> None:
    async with judged(tmp_path, allowTTL=-1, denyTTL=-1) as (harness, hook):
        for name in "ab":
            await harness.make(PODS, pod(name))
        hook.status = {}
        for name in "cd":
            assert (await harness.post(PODS, pod(name))).status == 403
        assert len(hook.asked) == 4


def statuses(body: Any, status: int = 200, *headers: tuple[str, str]) -> Response:
    return Response(status, body if isinstance(body, bytes) else orjson.dumps(body), list(headers or (JSON,)))


TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
UNUSABLE = {
    "another kind": (
        statuses({"apiVersion": "v1", "kind": "Pod"}),
        "converting (v1.Pod) to (v1alpha1.ImageReview): unknown conversion",
    ),
    "a status": (
        statuses({"apiVersion": "v1", "kind": "Status", "status": "Success"}),
        "converting (v1.Status) to (v1alpha1.ImageReview): unknown conversion",
    ),
    "no such kind": (
        statuses({**KIND, "kind": "Foo"}),
        'no kind "Foo" is registered for version '
        '"imagepolicy.k8s.io/v1alpha1" in scheme "pkg/api/legacyscheme/scheme.go:30"',
    ),
    "allowed": (
        statuses({**KIND, "status": {"allowed": "yes"}}),
        "json: cannot unmarshal string into Go struct field ImageReviewStatus.status.allowed of type bool",
    ),
    "reason": (
        statuses({**KIND, "status": {"allowed": True, "reason": 5}}),
        "json: cannot unmarshal number into Go struct field ImageReviewStatus.status.reason of type string",
    ),
    "notes": (
        statuses({**KIND, "status": {"auditAnnotations": {"a": 5}}}),
        "json: cannot unmarshal number into Go struct field ImageReviewStatus.status.auditAnnotations of type string",
    ),
    "a list for a status": (
        statuses({**KIND, "status": []}),
        "json: cannot unmarshal array into Go struct field ImageReview.status of type v1alpha1.ImageReviewStatus",
    ),
    "spec": (
        statuses({**KIND, "spec": {"containers": "x"}}),
        "json: cannot unmarshal string into Go struct field "
        "ImageReviewSpec.spec.containers of type []v1alpha1.ImageReviewContainerSpec",
    ),
    "a list": (
        statuses([1]),
        f"couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type {TYPE_META}",
    ),
    "cut off": (statuses(b'{"a":'), "couldn't get version/kind; json parse error: unexpected end of JSON input"),
    "no yaml": (statuses(b"hello: ["), "yaml: line 1: did not find expected node content"),
    "nothing": (statuses(b""), "0-length response with status code: 200 and content type: application/json"),
    "404": (statuses(b"nope", 404, ("content-type", "text/plain")), "the server could not find the requested resource"),
    "503": (
        statuses(b"nope", 503, ("content-type", "text/plain")),
        "the server is currently unable to handle the request",
    ),
}


@pytest.mark.parametrize(("answer", "why"), UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_invalid_responses(tmp_path: Path, answer: Response, why: str) -> None:
    async with judged(tmp_path) as (harness, hook):
        hook.raw = answer
        reply = await harness.post(PODS, pod())
        assert (reply.status, reply.json["reason"]) == (403, "Forbidden")
        assert reply.message == f'pods "p" is forbidden: {why}'
        assert len(hook.asked) == 1
        # It is asked again: only answers are remembered.
        hook.raw = None
        await harness.make(PODS, pod())


async def test_a_missing_status_denies(tmp_path: Path) -> None:
    async with judged(tmp_path, denyTTL=-1) as (harness, hook):
        for answer in (KIND, {**KIND, "status": None}, {}):
            hook.raw = statuses(answer)
            reply = await harness.post(PODS, pod())
            assert reply.message == 'pods "p" is forbidden: one or more images rejected by webhook backend'
        hook.raw = statuses({"status": {"allowed": True, "x": 1}, "y": 2}, 201)
        await harness.make(PODS, pod())


async def test_a_403_of_the_webhook_is_returned(tmp_path: Path) -> None:
    async with judged(tmp_path) as (harness, hook):
        hook.raw = statuses(b"nope", 403, ("content-type", "text/plain"))
        reply = await harness.post(PODS, pod())
        assert (reply.status, reply.message, reply.json["reason"]) == (403, "nope", "Forbidden")
        assert reply.json["details"] == {"causes": [{"reason": "UnexpectedServerResponse", "message": "nope"}]}
        status = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "no way", "code": 403}
        hook.raw = statuses({**status, "reason": "Forbidden"}, 403)
        assert (await harness.post(PODS, pod())).message == "no way"


async def test_transient_failures_are_retried(tmp_path: Path) -> None:
    async with judged(tmp_path, retryBackoff=1000) as (harness, hook):
        hook.raw = statuses(b"boom", 500, ("content-type", "text/plain"))
        asking = asyncio.ensure_future(harness.post(PODS, pod()))
        await harness.clock.advance(0.9)
        assert len(hook.asked) == 1
        await harness.clock.advance(12)
        reply = await asking
        assert len(hook.asked) == 5
        why = 'an error on the server ("boom") has prevented the request from succeeding'
        assert reply.message == f'pods "p" is forbidden: {why}'


async def test_a_failure_denies_unless_default_allow(tmp_path: Path) -> None:
    for default, status in ((False, 403), (True, 201)):
        async with judged(
            tmp_path, kubeConfigFile=kubeconfig(tmp_path / "k", "https://nobody.example/x"), defaultAllow=default
        ) as (harness, _):
            kept = audit(harness, {"level": "Metadata"})
            reply = await harness.post(PODS, pod())
            assert reply.status == status
            notes = kept.drain()[-1]["annotations"]
            if default:
                assert notes[f"{PREFIX}failed-open"] == "true" and reply.warnings == []
                # What others are shown of it is not stored.
                assert "annotations" not in (await harness.get(f"{PODS}/p")).json["metadata"]
            else:
                where = 'Post "https://nobody.example/x?timeout=30s": dial tcp nobody.example:443'
                assert reply.message == f'pods "p" is forbidden: {where}: connect: connection refused'
                assert not [key for key in notes if key.startswith(PREFIX)]


async def test_later_plugins_see_that_the_webhook_failed(tmp_path: Path) -> None:
    async with judged(
        tmp_path, kubeConfigFile=kubeconfig(tmp_path / "k", "https://nobody.example/x"), defaultAllow=True
    ) as (harness, _):
        rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
        expression = "!has(object.metadata.annotations) || !('alpha.image-policy.k8s.io/failed-open' in "
        spec = {
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": f"{expression}object.metadata.annotations)", "message": "nobody looked"}],
        }
        registration = "/apis/admissionregistration.k8s.io/v1"
        await harness.make(f"{registration}/validatingadmissionpolicies", {"metadata": {"name": "v"}, "spec": spec})
        bound = {"metadata": {"name": "v"}, "spec": {"policyName": "v", "validationActions": ["Deny"]}}
        await harness.make(f"{registration}/validatingadmissionpolicybindings", bound)
        reply = await harness.post(PODS, pod())
        assert reply.status == 422 and "nobody looked" in reply.message


async def test_audit_annotations_of_the_webhook(tmp_path: Path) -> None:
    async with judged(tmp_path) as (harness, hook):
        kept = audit(harness, {"level": "Metadata"})
        notes = {"a": "b", "bad/key": "x", "bad key": "y"}
        hook.status = {"allowed": True, "auditAnnotations": notes}
        await harness.make(PODS, pod())
        await harness.make(PODS, pod("from-memory"))
        hook.status = {"allowed": False, "auditAnnotations": notes}
        assert (await harness.post(PODS, pod("q", "b:1"))).status == 403
        for event in (event for event in kept.drain() if event["stage"] == "ResponseComplete"):
            found = {key: value for key, value in event["annotations"].items() if key.startswith(PREFIX)}
            assert found == {f"{PREFIX}a": "b"}, event


async def test_over_the_network(tmp_path: Path) -> None:
    """The client certificate is presented, which the webhook requires."""
    hook, theirs = ImageHook(), ensure_certificates(tmp_path / "a", EPOCH)
    ours = ensure_certificates(tmp_path / "b", datetime.now(UTC))
    shown: list[str] = []

    async def handle(request: Request) -> Response:
        shown.append(load_der_x509_certificate(request.peer.certificate or b"").subject.rfc4514_string())
        return hook.respond(request)

    certificate, key = issue_client_certificate(ours, "kube-apiserver", [], datetime.now(UTC))
    (tmp_path / "own.crt").write_bytes(certificate)
    (tmp_path / "own.key").write_bytes(key)
    server = Server(handle, clock=SystemClock(), ssl=server_context(theirs, ours.ca))
    _, port = await server.start("127.0.0.1", 0)
    configuration = kubeconfig(
        tmp_path / "k",
        f"https://127.0.0.1:{port}/review",
        authority=str(theirs.ca),
        **{"client-certificate": "own.crt", "client-key": "own.key"},
    )
    file = admission_file(tmp_path / "admission", {"kubeConfigFile": configuration})
    harness = await ServerHarness.open(
        admission_control_config_file=file, enable_admission_plugins=["ImagePolicyWebhook"]
    )
    hook.status = {"allowed": False, "reason": "no"}
    reply = await harness.post(PODS, pod())
    assert reply.message.endswith("denied one or more images: no") and shown == ["CN=kube-apiserver"]
    await harness.close()
    await server.stop(0)


# -- configuration -----------------------------------------------------------------------------------------------------

FIELD = "Go struct field imagePolicyWebhookConfig.imagePolicy"
WHOLE = "Go value of type imagepolicy.AdmissionConfig"
WHILE = "error unmarshaling JSON: while decoding JSON: "
RANGE = "valid value is between 1s and 30m0s, got"
UNSAID = "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable"
WRONG: dict[str, tuple[Any, str]] = {
    "nothing": ({}, UNSAID),
    "no section": ({"imagePolicy": None}, UNSAID),
    "no file": ({"imagePolicy": {"kubeConfigFile": "/nope/x"}}, "stat /nope/x: no such file or directory"),
    "a number": ({"imagePolicy": {"kubeConfigFile": 5}}, "stat 5: no such file or directory"),
    "allow": ({"imagePolicy": {"allowTTL": 1801}}, f"{RANGE} 30m1s"),
    "allow less": ({"imagePolicy": {"allowTTL": -2}}, f"{RANGE} -2s"),
    "allow far": ({"imagePolicy": {"allowTTL": 10**12}}, f"{RANGE} 1076616h40m19.684212736s"),
    "deny": ({"imagePolicy": {"denyTTL": 1801}}, f"{RANGE} 30m1s"),
    "pause": ({"imagePolicy": {"retryBackoff": 300001}}, "valid value is between 1ns and 5m0s, got 5m0.001s"),
    "pause less": ({"imagePolicy": {"retryBackoff": -2}}, "valid value is between 1ns and 5m0s, got -2ms"),
    "first": ({"imagePolicy": {"allowTTL": 1801, "retryBackoff": -2}}, "valid value is between 1ns and 5m0s, got -2ms"),
    "any case": ({"ImagePolicy": {"AllowTTL": 1801}}, f"{RANGE} 30m1s"),
    "fraction": (
        {"imagePolicy": {"allowTTL": 1.5}},
        f"json: cannot unmarshal number 1.5 into {FIELD}.allowTTL of type time.Duration",
    ),
    "text": (
        {"imagePolicy": {"allowTTL": "30s"}},
        f"json: cannot unmarshal string into {FIELD}.allowTTL of type time.Duration",
    ),
    "switch": (
        {"imagePolicy": {"defaultAllow": "yes"}},
        f"json: cannot unmarshal string into {FIELD}.defaultAllow of type bool",
    ),
    "section": (
        {"imagePolicy": []},
        "json: cannot unmarshal array into Go struct field AdmissionConfig.imagePolicy of "
        "type imagepolicy.imagePolicyWebhookConfig",
    ),
    "list": ([], f"{WHILE}json: cannot unmarshal array into {WHOLE}"),
    "null": (None, "no config specified"),
}
WRONG_FILES: dict[str, tuple[str, str]] = {
    "empty": ("", "EOF"),
    "text": ("hello\n", f"{WHILE}json: cannot unmarshal string into {WHOLE}"),
    "yaml": ("imagePolicy: [", "error converting YAML to JSON: yaml: line 1: did not find expected node content"),
    "typed": (
        "imagePolicy:\n  denyTTL: 5s\n",
        f"{WHILE}json: cannot unmarshal string into {FIELD}.denyTTL of type time.Duration",
    ),
    "json": ('{"imagePolicy":{"allowTTL":1801}}', f"{RANGE} 30m1s"),
    "cut off": ('{"imagePolicy":{"allowTTL":1801', "unexpected EOF"),
    "later documents": ("---\nimagePolicy:\n  kubeConfigFile: /x\n---\n[", "stat /x: no such file or directory"),
    "key twice": ("imagePolicy:\n  allowTTL: 1801\n  allowTTL: -2\n", f"{RANGE} -2s"),
}


def written(configuration: Any, path: Path) -> str:
    path.write_text(configuration if isinstance(configuration, str) else orjson.dumps(configuration).decode())
    return str(path)


async def refused(configuration: Any, path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        await ServerHarness.open(
            admission_control_config_file=written(configuration, path), enable_admission_plugins=["ImagePolicyWebhook"]
        )
    prefix = '--admission-control-config-file: couldn\'t init admission plugin "ImagePolicyWebhook": '
    assert str(caught.value).startswith(prefix)
    return str(caught.value)[len(prefix) :]


def configured(**plugin: Any) -> Obj:
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
    return kind | {"plugins": [{"name": "ImagePolicyWebhook", **plugin}]}


@pytest.mark.parametrize(("configuration", "why"), WRONG.values(), ids=WRONG.keys())
async def test_invalid_settings(tmp_path: Path, configuration: Any, why: str) -> None:
    assert await refused(configured(configuration=configuration), tmp_path / "admission") == why


@pytest.mark.parametrize(("configuration", "why"), WRONG_FILES.values(), ids=WRONG_FILES.keys())
async def test_invalid_settings_in_a_separate_file(tmp_path: Path, configuration: str, why: str) -> None:
    (tmp_path / "own").write_text(configuration)
    assert await refused(configured(path="own"), tmp_path / "admission") == why


async def test_the_legacy_file_format(tmp_path: Path) -> None:
    """The whole file is the configuration of the plugin."""
    for configuration in (
        "imagePolicy: {allowTTL: 1801}\n",
        '{"imagePolicy": {"allowTTL": 1801}}',
        "apiVersion: a/v1\nkind: B\nimagePolicy: {allowTTL: 1801}\n",
        "podNodeSelectorPluginConfig: {}\nimagePolicy: {allowTTL: 1801}\n",
    ):
        assert await refused(configuration, tmp_path / "admission") == f"{RANGE} 30m1s"
    assert await refused("podNodeSelectorPluginConfig: {}\n", tmp_path / "admission") == UNSAID


async def test_it_is_disabled_by_default_and_needs_a_configuration() -> None:
    harness = await ServerHarness.open()
    assert "ImagePolicyWebhook" not in [plugin.name for plugin in harness.api.resources.env.admission.plugins]
    await harness.close()
    with pytest.raises(ConfigError, match=r'init admission plugin "ImagePolicyWebhook": no config specified'):
        await ServerHarness.open(enable_admission_plugins=["ImagePolicyWebhook"])


async def test_its_position_in_the_order(tmp_path: Path) -> None:
    async with judged(tmp_path) as (harness, _):
        names = [plugin.name for plugin in harness.api.resources.env.admission.plugins]
        at = names.index("ImagePolicyWebhook")
        assert names[at - 1 : at + 2] == ["TaintNodesByCondition", "ImagePolicyWebhook", "PodSecurity"]
