"""Webhooks and policies from files (`staticManifestsDir`), through the API, and invalid files."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import orjson
import pytest
from admission_attributes import ManualClock
from server_harness import ServerHarness
from token_issuer import Network

from setpoint.apiserver.admission.dynamic.static_manifests import StaticManifests
from setpoint.apiserver.config_files import FileProblem
from setpoint.apiserver.remote_servers import RemoteServer
from setpoint.cluster.config import ConfigError
from setpoint.meta.body import dump_yaml
from setpoint.meta.objects import Obj
from setpoint.wire.message import Request, Response

GROUP = "admissionregistration.k8s.io"
VERSION = f"{GROUP}/v1"
REGISTRATION = f"/apis/{VERSION}"
MAPS = "/api/v1/namespaces/default/configmaps"
ANY = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}


def policy(name: str = "guard.static.k8s.io", **spec: Any) -> Obj:
    spec = {
        "matchConstraints": {"resourceRules": [ANY]},
        "validations": [{"expression": "request.name != 'no'", "message": "not this one"}],
        **spec,
    }
    return {"apiVersion": VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}


def binding(name: str = "guard.static.k8s.io", to: str = "guard.static.k8s.io", **spec: Any) -> Obj:
    spec = {"policyName": to, "validationActions": ["Deny"], **spec}
    kind = "ValidatingAdmissionPolicyBinding"
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def webhooks(name: str = "hook.static.k8s.io", kind: str = "Validating", **hook: Any) -> Obj:
    found = {
        "name": f"{name.split('.')[0]}.example.com",
        "clientConfig": {"url": f"https://{name}/ask"},
        "rules": [ANY],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **hook,
    }
    return {
        "apiVersion": VERSION,
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [found],
    }


class Files:
    """The configuration of plugins, each with its own directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.plugins: list[Obj] = []

    def write(self, plugin: str, name: str, *objs: Obj) -> None:
        directory = self._root / plugin
        if not directory.exists():
            directory.mkdir()
            kind = f"{plugin}Configuration" if "Policy" in plugin else "WebhookAdmissionConfiguration"
            configuration = {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": kind,
                "staticManifestsDir": str(directory),
            }
            self.plugins.append({"name": plugin, "configuration": configuration})
        (directory / name).write_bytes(b"---\n".join(dump_yaml(obj) for obj in objs))

    def remove(self, plugin: str, name: str) -> None:
        (self._root / plugin / name).unlink()

    def configuration(self) -> str:
        path = self._root / "admission.json"
        kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
        path.write_bytes(orjson.dumps(kind | {"plugins": self.plugins}))
        return str(path)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def opened(files: Files, network: Network | None = None) -> AbstractAsyncContextManager[ServerHarness]:
    return ServerHarness.running(servers=network or Network(), admission_control_config_file=files.configuration())


DENIED = (
    "ValidatingAdmissionPolicy 'guard.static.k8s.io' with binding 'guard.static.k8s.io' denied request: not this one"
)


async def test_static_policies_apply_to_policies_too(files: Files) -> None:
    files.write("ValidatingAdmissionPolicy", "guard.yaml", policy(), binding())
    async with opened(files) as harness:
        reply = await harness.post(MAPS, {"metadata": {"name": "no"}})
        assert (reply.status, reply.message) == (422, f'configmaps "no" is forbidden: {DENIED}')
        await harness.make(MAPS, {"metadata": {"name": "yes"}})
        # Stored policies never apply to these resources; static ones do.
        path = f"{REGISTRATION}/validatingadmissionpolicies"
        reply = await harness.post(path, policy("no"))
        assert reply.message == f'validatingadmissionpolicies.{GROUP} "no" is forbidden: {DENIED}'
        await harness.make(path, policy("yes"))
        await harness.make(f"{REGISTRATION}/validatingadmissionpolicybindings", binding("yes", "yes"))
        await harness.make(path, policy("unseen"))
        # Access reviews are exempt from all policies.
        review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
        assert (await harness.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)).status == 201
        # They cannot be seen or changed, and no request can make one.
        listed = (await harness.get(path)).json["items"]
        assert [one["metadata"]["name"] for one in listed] == ["unseen", "yes"]
        reply = await harness.post(path, policy())
        assert reply.status == 422 and "are reserved for static manifest-based configurations" in reply.message


async def test_mutating_policies(files: Files) -> None:
    expression = 'Object{metadata: Object.metadata{labels: {"marked": "yes"}}}'
    mutations = [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]
    spec = {
        "matchConstraints": {"resourceRules": [ANY | {"resources": ["configmaps", "validatingadmissionpolicies"]}]},
        "reinvocationPolicy": "Never",
        "mutations": mutations,
    }
    name = {"name": "mark.static.k8s.io"}
    made = {"apiVersion": VERSION, "kind": "MutatingAdmissionPolicy", "metadata": name, "spec": spec}
    bound = {
        "apiVersion": VERSION,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": name,
        "spec": {"policyName": name["name"]},
    }
    files.write("MutatingAdmissionPolicy", "a.yaml", made, bound)
    async with opened(files) as harness:
        for path, obj in (
            (MAPS, {"metadata": {"name": "m"}}),
            (f"{REGISTRATION}/validatingadmissionpolicies", policy("p")),
        ):
            assert (await harness.make(path, obj))["metadata"]["labels"] == {"marked": "yes"}


class Hooks:
    """Webhooks by host, which allow everything and record the kinds that they were called for."""

    def __init__(self, network: Network, *hosts: str) -> None:
        self.asked: list[tuple[str, str]] = []
        for host in hosts:
            network.hosts[host] = self.answer

    def answer(self, server: RemoteServer, request: Request) -> Response:
        review = orjson.loads(request.body)
        self.asked.append((server.host, review["request"]["resource"]["resource"]))
        response = {"uid": review["request"]["uid"], "allowed": True}
        return Response(
            200, orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
        )


async def test_static_webhooks_precede_stored_ones(files: Files) -> None:
    files.write("MutatingAdmissionWebhook", "w.json", webhooks("z.static.k8s.io", "Mutating"))
    network = Network()
    hooks = Hooks(network, "z.static.k8s.io", "a.example")
    async with opened(files, network) as harness:
        hooks.asked.clear()
        await harness.make(f"{REGISTRATION}/mutatingwebhookconfigurations", webhooks("a.example", "Mutating"))
        assert hooks.asked == [("z.static.k8s.io", "mutatingwebhookconfigurations")]
        await harness.make(MAPS, {"metadata": {"name": "m"}})
        assert hooks.asked[1:] == [("z.static.k8s.io", "configmaps"), ("a.example", "configmaps")]
        # A stored webhook is not called for configurations of webhooks.
        await harness.make(f"{REGISTRATION}/mutatingwebhookconfigurations", webhooks("b.example", "Mutating", rules=[]))
        assert hooks.asked[3:] == [("z.static.k8s.io", "mutatingwebhookconfigurations")]


async def test_changed_files_are_reloaded(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    plugin = "ValidatingAdmissionPolicy"
    files.write(plugin, "guard.yaml", policy(), binding())

    async def status(harness: ServerHarness) -> int:
        await harness.clock.advance(2)
        return (await harness.post(MAPS, {"metadata": {"name": "no"}})).status

    async with opened(files) as harness:
        assert await status(harness) == 422
        # Invalid files change nothing, and are reported once.
        files.write(plugin, "other.yaml", policy("misnamed"))
        assert [await status(harness) for _ in range(2)] == [422, 422]
        assert caplog.text.count('"misnamed" in file') == 1
        files.remove(plugin, "other.yaml")
        files.write(plugin, "guard.yaml", policy(validations=[{"expression": "true"}]), binding())
        assert await status(harness) == 201
        files.remove(plugin, "guard.yaml")
        await harness.delete(f"{MAPS}/no")
        assert await status(harness) == 201


async def test_a_server_does_not_start_with_invalid_files(files: Files, tmp_path: Path) -> None:
    files.write("ValidatingAdmissionWebhook", "w.yaml", webhooks("w"))
    with pytest.raises(ConfigError) as caught:
        await ServerHarness.open(admission_control_config_file=files.configuration())
    at = tmp_path / "ValidatingAdmissionWebhook"
    assert str(caught.value) == (
        '--admission-control-config-file: failed to initialize admission plugin "ValidatingAdmissionWebhook": failed '
        f'to load static webhook manifests from "{at}": error loading {at}/w.yaml: "w" in file "{at}/w.yaml" must have '
        'a name ending with ".static.k8s.io"'
    )


# -- what is wrong with files -----------------------------------------------------------------------------------------

WEBHOOKS = ["validatingwebhookconfigurations"]
POLICIES = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"]
SERVICE = {"service": {"name": "s", "namespace": "n"}}
PARAMS = {"name": "x", "parameterNotFoundAction": "Deny"}


def several(*objs: Any, kind: str = "List", version: str = "v1") -> Obj:
    return {"apiVersion": version, "kind": kind, "items": list(objs)}


WRONG: dict[str, tuple[list[str], dict[str, Any], str]] = {
    "no name": (
        WEBHOOKS,
        {"a": webhooks() | {"metadata": {}}},
        "error loading a: ValidatingWebhookConfiguration "
        '"": metadata.name: Required value: name or generateName is required',
    ),
    "comment": (WEBHOOKS, {"a": b"# nothing"}, "error loading a: Object 'Kind' is missing in '# nothing'"),
    "twice": (
        WEBHOOKS,
        {"a": webhooks(), "b": webhooks()},
        'error loading b: duplicate name "hook.static.k8s.io" found in file "b" (previously seen in "a")',
    ),
    "twice in one": (
        WEBHOOKS,
        {"a": several(webhooks(), webhooks())},
        'error loading a: duplicate name "hook.static.k8s.io" found in file "a" (previously seen in "a")',
    ),
    "service": (
        WEBHOOKS,
        {"a": webhooks(clientConfig=SERVICE)},
        'error loading a: webhook "hook.example.com" in '
        '"hook.static.k8s.io" (file "a"): clientConfig.service is not supported for static manifests; use '
        "clientConfig.url instead",
    ),
    "invalid": (
        WEBHOOKS,
        {"a": webhooks(timeoutSeconds=99)},
        "error loading a: ValidatingWebhookConfiguration "
        '"hook.static.k8s.io": webhooks[0].timeoutSeconds: Invalid value: 99: the timeout value must be '
        "between 1 and 30 seconds",
    ),
    "of the other plugin": (
        WEBHOOKS,
        {"a": webhooks(kind="Mutating")},
        "error loading a: unsupported resource type *v1.MutatingWebhookConfiguration",
    ),
    "list of the other": (
        WEBHOOKS,
        {"a": several(kind="MutatingWebhookConfigurationList", version=VERSION)},
        "error loading a: unsupported resource type *v1.MutatingWebhookConfigurationList",
    ),
    "policy": (WEBHOOKS, {"a": policy()}, "error loading a: unsupported resource type *v1.ValidatingAdmissionPolicy"),
    "webhook": (
        POLICIES,
        {"a": webhooks()},
        "error loading a: unsupported resource type *v1.ValidatingWebhookConfiguration",
    ),
    "Pod": (
        WEBHOOKS,
        {"a": {"apiVersion": "v1", "kind": "Pod"}},
        'error loading a: no kind "Pod" is registered for version "v1" in scheme '
        '"pkg/admission/plugin/webhook/manifest/loader/loader.go:41"',
    ),
    "Pod among policies": (
        POLICIES,
        {"a": {"apiVersion": "v1", "kind": "Pod"}},
        'error loading a: no kind "Pod" is registered for version "v1" in scheme '
        '"pkg/admission/plugin/policy/manifest/loader/validating_loader.go:35"',
    ),
    "v1beta1": (
        WEBHOOKS,
        {"a": webhooks() | {"apiVersion": "admissionregistration.k8s.io/v1beta1"}},
        "error loading a: unsupported resource type *v1beta1.ValidatingWebhookConfiguration",
    ),
    "v1beta1 in a list": (
        WEBHOOKS,
        {"a": several(webhooks() | {"apiVersion": "admissionregistration.k8s.io/v1beta1"})},
        "error loading a: unsupported resource type *v1beta1.ValidatingWebhookConfiguration",
    ),
    "v1alpha1": (
        POLICIES,
        {"a": policy() | {"apiVersion": "admissionregistration.k8s.io/v1alpha1"}},
        "error loading a: unsupported resource type *v1alpha1.ValidatingAdmissionPolicy",
    ),
    "v1alpha1 without webhooks": (
        WEBHOOKS,
        {"a": webhooks() | {"apiVersion": "admissionregistration.k8s.io/v1alpha1"}},
        'error loading a: no kind "ValidatingWebhookConfiguration" is registered for version '
        '"admissionregistration.k8s.io/v1alpha1" in scheme '
        '"pkg/admission/plugin/webhook/manifest/loader/loader.go:41"',
    ),
    "nothing in a list": (
        WEBHOOKS,
        {"a": several(None)},
        "error loading a: failed to decode list item: Object 'Kind' is missing in ''",
    ),
    "Pod in a list": (
        WEBHOOKS,
        {"a": several({"apiVersion": "v1", "kind": "Pod"})},
        "error loading a: failed to "
        'decode list item: no kind "Pod" is registered for version "v1" in scheme '
        '"pkg/admission/plugin/webhook/manifest/loader/loader.go:41"',
    ),
    "misnamed in a list": (
        WEBHOOKS,
        {"a": several(webhooks("a"))},
        'error loading a: "a" in file "a" must have a name ending with ".static.k8s.io"',
    ),
    "misnamed in a list of its kind": (
        WEBHOOKS,
        {"a": several(webhooks("a"), kind="ValidatingWebhookConfigurationList", version=VERSION)},
        'error loading a: "a" in file "a" must have a name ending with ".static.k8s.io"',
    ),
    "unknown field": (
        WEBHOOKS,
        {"a": webhooks() | {"foo": 1}},
        'error loading a: strict decoding error: unknown field "foo"',
    ),
    "broken": (WEBHOOKS, {"a": b"a: ["}, "error loading a: yaml: line 1: did not find expected node content"),
    "separator": (
        WEBHOOKS,
        {"a": b"--- x\na: b"},
        'failed to split YAML documents in file "a": invalid Yaml document separator: x',
    ),
    "parameters": (
        POLICIES,
        {"a": policy(paramKind={"apiVersion": "v1", "kind": "ConfigMap"})},
        "error loading a: "
        'ValidatingAdmissionPolicy "guard.static.k8s.io": spec.paramKind is not supported for static '
        "manifests",
    ),
    "bound to parameters": (
        POLICIES,
        {"a": policy(), "b": binding(paramRef=PARAMS)},
        'error loading b: binding "guard.static.k8s.io": spec.paramRef is not supported for static manifests',
    ),
    "bound to nothing": (
        POLICIES,
        {"b": binding()},
        'binding "guard.static.k8s.io" references policy '
        '"guard.static.k8s.io" which does not exist in the manifest directory',
    ),
    "bound to another": (
        POLICIES,
        {"b": binding(to="x")},
        'error loading b: binding "guard.static.k8s.io": spec.policyName "x" must end with ".static.k8s.io"',
    ),
    "expression": (
        POLICIES,
        {"a": policy(validations=[{"expression": "x ="}])},
        "error loading a: "
        'ValidatingAdmissionPolicy "guard.static.k8s.io": spec.validations[0].expression: Invalid value: '
        "\"x =\": compilation failed: ERROR: <input>:1:3: Syntax error: token recognition error at: '='\n"
        " | x =\n | ..^",
    ),
}


@pytest.mark.parametrize(("plurals", "found", "why"), WRONG.values(), ids=WRONG.keys())
def test_invalid_files(plurals: list[str], found: dict[str, Any], why: str) -> None:
    manifests = StaticManifests(plurals, ManualClock())
    good = [webhooks()] if plurals is WEBHOOKS else [policy(), binding()]
    manifests.load([("good", dump_yaml(several(*good)))])
    before = [manifests.objects_of(plural) for plural in plurals]
    with pytest.raises(FileProblem) as caught:
        manifests.load([(name, obj if isinstance(obj, bytes) else dump_yaml(obj)) for name, obj in found.items()])
    assert str(caught.value) == why
    assert ([manifests.objects_of(plural) for plural in plurals], manifests.revision) == (before, 1)


def test_valid_files() -> None:
    """Defaults are set; comments after separators, empty documents and nested lists are accepted."""
    manifests = StaticManifests(WEBHOOKS, ManualClock())
    nested = several(webhooks("b.static.k8s.io"), several(webhooks("c.static.k8s.io")))
    text = b"--- # first\n" + dump_yaml(nested) + b"---\n\n---\n" + orjson.dumps(webhooks("a.static.k8s.io"))
    manifests.load([("empty", b""), ("all", text)])
    found = manifests.objects_of(*WEBHOOKS)
    assert [one["metadata"]["name"][0] for one in found] == ["a", "b", "c"]
    assert {one["webhooks"][0]["failurePolicy"] for one in found} == {"Fail"}
    manifests.load([])
    assert (list(manifests.objects_of(*WEBHOOKS)), manifests.revision) == ([], 2)
