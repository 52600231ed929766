"""ImagePolicyWebhook, through the front door."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.x509 import load_der_x509_certificate
from front_door import EPOCH, STRATEGIC, FrontDoor
from image_hook import ImageHook, Obj, admission_file, judged, kubeconfig

from setpoint.apiserver.http.certificates import ensure_certificates, issue_client_certificate, server_context
from setpoint.apiserver.http.message import Request, Response
from setpoint.apiserver.http.server import Server
from setpoint.cluster.config import ConfigError
from setpoint.system import SystemClock

sys.path.insert(0, str(Path(__file__).parents[1] / "audit"))

from audited_door import audit

PODS = "/api/v1/namespaces/default/pods"
KIND = {"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview"}
JSON = ("content-type", "application/json")
PREFIX = "imagepolicywebhook.image-policy.k8s.io/"


def pod(name: str = "p", image: str = "a:1", **more: Any) -> Obj:
    return {"metadata": {"name": name, **more}, "spec": {"containers": [{"name": "c", "image": image}]}}


async def test_what_the_webhook_is_asked(tmp_path: Path) -> None:
    async with judged(tmp_path, kubeConfigFile=kubeconfig(tmp_path / "k", token="sesame")) as (door, hook):
        made = pod(
            annotations={"x.image-policy.k8s.io/break-glass": "yes", "other": "no", "image-policy.k8s.io/a": "b"}
        )
        made["spec"]["containers"].append({"name": "d", "image": "b:2"})
        made["spec"]["initContainers"] = [{"name": "i", "image": "init:1"}]
        await door.make(PODS, made)
        (asked,) = hook.asked
        assert (asked.method, asked.path, asked.query) == ("POST", "/judge", "timeout=30s")
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
        # A Pod that changes is looked at again; its status, and other kinds, are nobody's business.
        await door.patch(f"{PODS}/p", {"metadata": {"annotations": {"x.image-policy.k8s.io/break-glass": None}}})
        assert len(hook.asked) == 2 and "annotations" not in hook.specs[1]
        assert (await door.patch(f"{PODS}/p/status", {"status": {"message": "m"}})).status == 200
        await door.make("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "m"}})
        assert (await door.delete(f"{PODS}/p?gracePeriodSeconds=0")).status == 200
        assert len(hook.asked) == 2


async def test_containers_added_later_are_judged_too(tmp_path: Path) -> None:
    """CVE-2023-2727: ephemeral containers passed a policy for images."""
    async with judged(tmp_path) as (door, hook):
        await door.make(PODS, pod())
        hook.status = {"allowed": False, "reason": "not on the list"}
        added = {"spec": {"ephemeralContainers": [{"name": "e", "image": "debug:1"}]}}
        reply = await door.patch(f"{PODS}/p/ephemeralcontainers", added, STRATEGIC)
        assert (reply.status, reply.message) == (
            403,
            'pods "p" is forbidden: image policy webhook backend denied one or more images: not on the list',
        )
        assert hook.specs[1] == {"containers": [{"image": "debug:1"}], "namespace": "default"}
        hook.status = {}
        changed = {"spec": {"containers": [{"name": "c", "image": "a:2"}]}}
        reply = await door.patch(f"{PODS}/p", changed, STRATEGIC)
        assert reply.message == 'pods "p" is forbidden: one or more images rejected by webhook backend'
        assert (await door.get(f"{PODS}/p")).json["spec"]["containers"][0]["image"] == "a:1"


async def test_answers_are_remembered(tmp_path: Path) -> None:
    async with judged(tmp_path, allowTTL=60, denyTTL=5) as (door, hook):
        for name in "abc":
            await door.make(PODS, pod(name))
        assert len(hook.asked) == 1
        await door.make("/api/v1/namespaces/other/pods", pod())
        assert len(hook.asked) == 2
        hook.status = {"allowed": False}
        await door.clock.advance(59)
        await door.make(PODS, pod("d"))
        await door.clock.advance(2)
        assert [(await door.post(PODS, pod("e"))).status for _ in range(3)] == [403] * 3
        assert len(hook.asked) == 3
        hook.status = {"allowed": True}
        await door.clock.advance(6)
        await door.make(PODS, pod("e"))


async def test_answers_that_are_not_to_be_remembered(tmp_path: Path) -> None:
    async with judged(tmp_path, allowTTL=-1, denyTTL=-1) as (door, hook):
        for name in "ab":
            await door.make(PODS, pod(name))
        hook.status = {}
        for name in "cd":
            assert (await door.post(PODS, pod(name))).status == 403
        assert len(hook.asked) == 4


def said(body: Any, status: int = 200, *headers: tuple[str, str]) -> Response:
    return Response(status, body if isinstance(body, bytes) else orjson.dumps(body), list(headers or (JSON,)))


TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
UNUSABLE = {
    "another kind": (said({"apiVersion": "v1", "kind": "Pod"}),
                     "converting (v1.Pod) to (v1alpha1.ImageReview): unknown conversion"),
    "a status": (said({"apiVersion": "v1", "kind": "Status", "status": "Success"}),
                 "converting (v1.Status) to (v1alpha1.ImageReview): unknown conversion"),
    "no such kind": (said({**KIND, "kind": "Foo"}), 'no kind "Foo" is registered for version '
                     '"imagepolicy.k8s.io/v1alpha1" in scheme "pkg/api/legacyscheme/scheme.go:30"'),
    "allowed": (said({**KIND, "status": {"allowed": "yes"}}), "json: cannot unmarshal string into Go struct field "
                "ImageReviewStatus.status.allowed of type bool"),
    "reason": (said({**KIND, "status": {"allowed": True, "reason": 5}}), "json: cannot unmarshal number into Go "
               "struct field ImageReviewStatus.status.reason of type string"),
    "notes": (said({**KIND, "status": {"auditAnnotations": {"a": 5}}}), "json: cannot unmarshal number into Go struct "
              "field ImageReviewStatus.status.auditAnnotations of type string"),
    "a list for a status": (said({**KIND, "status": []}), "json: cannot unmarshal array into Go struct field "
                            "ImageReview.status of type v1alpha1.ImageReviewStatus"),
    "spec": (said({**KIND, "spec": {"containers": "x"}}), "json: cannot unmarshal string into Go struct field "
             "ImageReviewSpec.spec.containers of type []v1alpha1.ImageReviewContainerSpec"),
    "a list": (said([1]), f"couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of "
               f"type {TYPE_META}"),
    "cut off": (said(b'{"a":'), "couldn't get version/kind; json parse error: unexpected end of JSON input"),
    "no yaml": (said(b"hello: ["), "yaml: line 1: did not find expected node content"),
    "nothing": (said(b""), "0-length response with status code: 200 and content type: application/json"),
    "404": (said(b"nope", 404, ("content-type", "text/plain")), "the server could not find the requested resource"),
    "503": (said(b"nope", 503, ("content-type", "text/plain")),
            "the server is currently unable to handle the request"),
}  # fmt: skip


@pytest.mark.parametrize(("answer", "why"), UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_what_is_no_answer(tmp_path: Path, answer: Response, why: str) -> None:
    async with judged(tmp_path) as (door, hook):
        hook.raw = answer
        reply = await door.post(PODS, pod())
        assert (reply.status, reply.json["reason"]) == (403, "Forbidden")
        assert reply.message == f'pods "p" is forbidden: {why}'
        assert len(hook.asked) == 1
        # It is asked again: only answers are remembered.
        hook.raw = None
        await door.make(PODS, pod())


async def test_no_is_no_whatever_is_missing(tmp_path: Path) -> None:
    async with judged(tmp_path, denyTTL=-1) as (door, hook):
        for answer in (KIND, {**KIND, "status": None}, {}):
            hook.raw = said(answer)
            reply = await door.post(PODS, pod())
            assert reply.message == 'pods "p" is forbidden: one or more images rejected by webhook backend'
        hook.raw = said({"status": {"allowed": True, "x": 1}, "y": 2}, 201)
        await door.make(PODS, pod())


async def test_who_may_not_ask_is_told_so(tmp_path: Path) -> None:
    async with judged(tmp_path) as (door, hook):
        hook.raw = said(b"nope", 403, ("content-type", "text/plain"))
        reply = await door.post(PODS, pod())
        assert (reply.status, reply.message, reply.json["reason"]) == (403, "nope", "Forbidden")
        assert reply.json["details"] == {"causes": [{"reason": "UnexpectedServerResponse", "message": "nope"}]}
        status = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "no way", "code": 403}
        hook.raw = said({**status, "reason": "Forbidden"}, 403)
        assert (await door.post(PODS, pod())).message == "no way"


async def test_what_may_pass_is_tried_again(tmp_path: Path) -> None:
    async with judged(tmp_path, retryBackoff=1000) as (door, hook):
        hook.raw = said(b"boom", 500, ("content-type", "text/plain"))
        asking = asyncio.ensure_future(door.post(PODS, pod()))
        await door.clock.advance(0.9)
        assert len(hook.asked) == 1
        await door.clock.advance(12)
        reply = await asking
        assert len(hook.asked) == 5
        why = 'an error on the server ("boom") has prevented the request from succeeding'
        assert reply.message == f'pods "p" is forbidden: {why}'


async def test_silence_is_a_refusal_unless_it_is_consent(tmp_path: Path) -> None:
    for default, status in ((False, 403), (True, 201)):
        async with judged(
            tmp_path, kubeConfigFile=kubeconfig(tmp_path / "k", "https://nobody.example/x"), defaultAllow=default
        ) as (door, _):
            kept = audit(door, {"level": "Metadata"})
            reply = await door.post(PODS, pod())
            assert reply.status == status
            notes = kept.taken()[-1]["annotations"]
            if default:
                assert notes[f"{PREFIX}failed-open"] == "true" and reply.warnings == []
                # What others are shown of it is not stored.
                assert "annotations" not in (await door.get(f"{PODS}/p")).json["metadata"]
            else:
                where = 'Post "https://nobody.example/x?timeout=30s": dial tcp nobody.example:443'
                assert reply.message == f'pods "p" is forbidden: {where}: connect: connection refused'
                assert not [key for key in notes if key.startswith(PREFIX)]


async def test_those_who_look_afterwards_see_that_nobody_answered(tmp_path: Path) -> None:
    async with judged(
        tmp_path, kubeConfigFile=kubeconfig(tmp_path / "k", "https://nobody.example/x"), defaultAllow=True
    ) as (door, _):
        rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
        expression = "!has(object.metadata.annotations) || !('alpha.image-policy.k8s.io/failed-open' in "
        spec = {
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": f"{expression}object.metadata.annotations)", "message": "nobody looked"}],
        }
        registration = "/apis/admissionregistration.k8s.io/v1"
        await door.make(f"{registration}/validatingadmissionpolicies", {"metadata": {"name": "v"}, "spec": spec})
        bound = {"metadata": {"name": "v"}, "spec": {"policyName": "v", "validationActions": ["Deny"]}}
        await door.make(f"{registration}/validatingadmissionpolicybindings", bound)
        reply = await door.post(PODS, pod())
        assert reply.status == 422 and "nobody looked" in reply.message


async def test_what_the_webhook_wants_to_be_audited(tmp_path: Path) -> None:
    async with judged(tmp_path) as (door, hook):
        kept = audit(door, {"level": "Metadata"})
        notes = {"a": "b", "bad/key": "x", "bad key": "y"}
        hook.status = {"allowed": True, "auditAnnotations": notes}
        await door.make(PODS, pod())
        await door.make(PODS, pod("from-memory"))
        hook.status = {"allowed": False, "auditAnnotations": notes}
        assert (await door.post(PODS, pod("q", "b:1"))).status == 403
        for event in (event for event in kept.taken() if event["stage"] == "ResponseComplete"):
            found = {key: value for key, value in event["annotations"].items() if key.startswith(PREFIX)}
            assert found == {f"{PREFIX}a": "b"}, event


async def test_over_the_network(tmp_path: Path) -> None:
    """With a certificate of its own, which the webhook insists on."""
    hook, theirs = ImageHook(), ensure_certificates(tmp_path / "a", EPOCH)
    ours = ensure_certificates(tmp_path / "b", datetime.now(UTC))
    shown: list[str] = []

    async def handle(request: Request) -> Response:
        shown.append(load_der_x509_certificate(request.peer.certificate or b"").subject.rfc4514_string())
        return hook.said(request)

    certificate, key = issue_client_certificate(ours, "kube-apiserver", [], datetime.now(UTC))
    (tmp_path / "own.crt").write_bytes(certificate)
    (tmp_path / "own.key").write_bytes(key)
    server = Server(handle, clock=SystemClock(), ssl=server_context(theirs, ours.ca))
    _, port = await server.start("127.0.0.1", 0)
    told = kubeconfig(
        tmp_path / "k", f"https://127.0.0.1:{port}/judge", authority=str(theirs.ca),
        **{"client-certificate": "own.crt", "client-key": "own.key"},
    )  # fmt: skip
    file = admission_file(tmp_path / "admission", {"kubeConfigFile": told})
    door = await FrontDoor.open(admission_control_config_file=file, enable_admission_plugins=["ImagePolicyWebhook"])
    hook.status = {"allowed": False, "reason": "no"}
    reply = await door.post(PODS, pod())
    assert reply.message.endswith("denied one or more images: no") and shown == ["CN=kube-apiserver"]
    await door.close()
    await server.stop(0)


# -- how it is told ---------------------------------------------------------------------------------------------------

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
    "fraction": ({"imagePolicy": {"allowTTL": 1.5}},
                 f"json: cannot unmarshal number 1.5 into {FIELD}.allowTTL of type time.Duration"),
    "text": ({"imagePolicy": {"allowTTL": "30s"}},
             f"json: cannot unmarshal string into {FIELD}.allowTTL of type time.Duration"),
    "switch": ({"imagePolicy": {"defaultAllow": "yes"}},
               f"json: cannot unmarshal string into {FIELD}.defaultAllow of type bool"),
    "section": ({"imagePolicy": []}, "json: cannot unmarshal array into Go struct field AdmissionConfig.imagePolicy of "
                "type imagepolicy.imagePolicyWebhookConfig"),
    "list": ([], f"{WHILE}json: cannot unmarshal array into {WHOLE}"),
    "null": (None, "no config specified"),
}  # fmt: skip
WRONG_FILES: dict[str, tuple[str, str]] = {
    "empty": ("", "EOF"),
    "text": ("hello\n", f"{WHILE}json: cannot unmarshal string into {WHOLE}"),
    "yaml": ("imagePolicy: [", "error converting YAML to JSON: yaml: line 1: did not find expected node content"),
    "typed": ("imagePolicy:\n  denyTTL: 5s\n",
              f"{WHILE}json: cannot unmarshal string into {FIELD}.denyTTL of type time.Duration"),
    "json": ('{"imagePolicy":{"allowTTL":1801}}', f"{RANGE} 30m1s"),
    "cut off": ('{"imagePolicy":{"allowTTL":1801', "unexpected EOF"),
    "later documents": ("---\nimagePolicy:\n  kubeConfigFile: /x\n---\n[", "stat /x: no such file or directory"),
    "key twice": ("imagePolicy:\n  allowTTL: 1801\n  allowTTL: -2\n", f"{RANGE} -2s"),
}  # fmt: skip


def written(told: Any, path: Path) -> str:
    path.write_text(told if isinstance(told, str) else orjson.dumps(told).decode())
    return str(path)


async def refused(told: Any, path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        await FrontDoor.open(
            admission_control_config_file=written(told, path), enable_admission_plugins=["ImagePolicyWebhook"]
        )
    prefix = '--admission-control-config-file: couldn\'t init admission plugin "ImagePolicyWebhook": '
    assert str(caught.value).startswith(prefix)
    return str(caught.value)[len(prefix) :]


def configured(**plugin: Any) -> Obj:
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
    return kind | {"plugins": [{"name": "ImagePolicyWebhook", **plugin}]}


@pytest.mark.parametrize(("told", "why"), WRONG.values(), ids=WRONG.keys())
async def test_what_is_wrong_in_it(tmp_path: Path, told: Any, why: str) -> None:
    assert await refused(configured(configuration=told), tmp_path / "admission") == why


@pytest.mark.parametrize(("told", "why"), WRONG_FILES.values(), ids=WRONG_FILES.keys())
async def test_what_is_wrong_in_a_file_of_its_own(tmp_path: Path, told: str, why: str) -> None:
    (tmp_path / "own").write_text(told)
    assert await refused(configured(path="own"), tmp_path / "admission") == why


async def test_the_old_form(tmp_path: Path) -> None:
    """The whole file is the plugin's, and that of the other plugin that is as old."""
    for told in (
        "imagePolicy: {allowTTL: 1801}\n",
        '{"imagePolicy": {"allowTTL": 1801}}',
        "apiVersion: a/v1\nkind: B\nimagePolicy: {allowTTL: 1801}\n",
        "podNodeSelectorPluginConfig: {}\nimagePolicy: {allowTTL: 1801}\n",
    ):
        assert await refused(told, tmp_path / "admission") == f"{RANGE} 30m1s"
    assert await refused("podNodeSelectorPluginConfig: {}\n", tmp_path / "admission") == UNSAID


async def test_it_is_off_unless_it_is_wanted_and_told_what_to_do() -> None:
    door = await FrontDoor.open()
    assert "ImagePolicyWebhook" not in [plugin.name for plugin in door.api.env.admission.plugins]
    await door.close()
    with pytest.raises(ConfigError, match=r'init admission plugin "ImagePolicyWebhook": no config specified'):
        await FrontDoor.open(enable_admission_plugins=["ImagePolicyWebhook"])


async def test_its_place_is_among_the_others(tmp_path: Path) -> None:
    async with judged(tmp_path) as (door, _):
        names = [plugin.name for plugin in door.api.env.admission.plugins]
        at = names.index("ImagePolicyWebhook")
        assert names[at - 1 : at + 2] == ["TaintNodesByCondition", "ImagePolicyWebhook", "PodSecurity"]
