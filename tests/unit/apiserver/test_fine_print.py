"""Details of writes and responses of single kinds."""

from __future__ import annotations

from typing import Any

import pytest
from server_harness import ServerHarness

NS = "/api/v1/namespaces/default"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
POD = {"containers": [{"name": "c", "image": "i"}]}


def workload(kind: str) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


@pytest.mark.parametrize(
    ("path", "code"), [(f"{NS}/configmaps", 422), ("/apis/coordination.k8s.io/v1/namespaces/default/leases", 201)]
)
async def test_most_kinds_require_qualified_finalizers(harness: ServerHarness, path: str, code: int) -> None:
    reply = await harness.post(path, {"metadata": {"name": "x", "finalizers": ["bare"]}})
    assert reply.status == code
    if code == 422:
        why = "name is neither a standard finalizer name nor is it fully qualified"
        assert reply.message.endswith(f'metadata.finalizers[0]: Invalid value: "bare": {why}')
    await harness.make(path, {"metadata": {"name": "y", "finalizers": ["orphan", "a.b/c"]}})
    assert (await harness.patch(f"{path}/y", {"metadata": {"finalizers": ["bare"]}})).status == (
        code if code > 400 else 200
    )


async def test_an_empty_list_is_owned_but_shown_as_null(harness: ServerHarness) -> None:
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    made = await harness.make(path, {"metadata": {"name": "x"}, "addressType": "IPv4", "endpoints": []})
    assert made["endpoints"] is None
    owned = made["metadata"]["managedFields"][0]["fieldsV1"]
    assert "f:endpoints" in owned
    assert "f:ports" not in owned


async def test_the_first_write_of_a_new_claim_gets_a_revision(harness: ServerHarness) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made = await harness.make(f"{NS}/persistentvolumeclaims", {"metadata": {"name": "x"}, "spec": spec})
    first = (await harness.patch(f"{NS}/persistentvolumeclaims/x", {})).json
    assert first["metadata"].pop("resourceVersion") != made["metadata"].pop("resourceVersion")
    assert first == made
    revision = harness.store.revision
    await harness.patch(f"{NS}/persistentvolumeclaims/x", {})
    assert harness.store.revision == revision


async def test_a_job_keeps_its_labels_through_status(harness: ServerHarness) -> None:
    path = "/apis/batch/v1/namespaces/default/jobs"
    body = {"metadata": {"name": "x"}, "spec": {"template": {"spec": {**POD, "restartPolicy": "Never"}}}}
    made = await harness.make(path, body)
    assert (await harness.put(f"{path}/x/status", body)).json["metadata"]["labels"] == made["metadata"]["labels"]


async def test_the_template_generation_of_a_daemon_set_is_not_in_its_table(harness: ServerHarness) -> None:
    path, name = "/apis/apps/v1/namespaces/default/daemonsets", "deprecated.daemonset.template.generation"
    await harness.make(path, workload("DaemonSet"))
    assert (await harness.put(f"{path}/x/status", workload("DaemonSet"))).json["metadata"]["annotations"] == {name: "1"}
    assert "annotations" not in (await harness.get(path, headers=TABLE)).json["rows"][0]["object"]["metadata"]
    await harness.patch(f"{path}/x", {"metadata": {"annotations": {"mine": "1"}}})
    row = (await harness.get(f"{path}/x", headers=TABLE)).json["rows"][0]
    assert row["object"]["metadata"]["annotations"] == {"mine": "1"}


async def test_only_lists_mark_the_default_storage_class(harness: ServerHarness) -> None:
    path = "/apis/storage.k8s.io/v1/storageclasses"
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    await harness.make(path, {"metadata": {"name": "x", "annotations": annotations}, "provisioner": "a.b/c"})
    assert (await harness.get(path, headers=TABLE)).json["rows"][0]["cells"][0] == "x (default)"
    assert (await harness.get(f"{path}/x", headers=TABLE)).json["rows"][0]["cells"][0] == "x"


async def test_status_writes_of_some_kinds_require_a_resource_version(harness: ServerHarness) -> None:
    path = "/apis/storage.k8s.io/v1/volumeattachments"
    spec = {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    body = {"metadata": {"name": "x"}, "spec": spec}
    await harness.make(path, body)
    reply = await harness.put(f"{path}/x/status", body)
    assert reply.status == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in reply.message


async def test_generated_names_of_some_kinds(harness: ServerHarness) -> None:
    limits = await harness.make(f"{NS}/limitranges", {"metadata": {}, "spec": {"limits": []}})
    assert len(limits["metadata"]["name"]) == 36
    assert limits["metadata"]["name"] != limits["metadata"]["uid"]
    reply = await harness.post("/apis/networking.k8s.io/v1/ipaddresses", {"metadata": {"generateName": "x-"}})
    assert reply.json["details"]["name"] == "x-"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/apis/batch/v1/jobs", 'field label "spec.x" not supported for Job'),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.x",
        ),
    ],
)
async def test_errors_of_field_selectors_by_kind(harness: ServerHarness, path: str, words: str) -> None:
    assert (await harness.get(f"{path}?fieldSelector=spec.x%3D1")).message == words


@pytest.mark.parametrize(
    ("path", "accept", "code", "form"),
    [
        ("/api/v1", "application/yaml", 200, "application/yaml"),
        ("/apis", "application/yaml", 200, "application/yaml"),
        ("/apis/apps", "application/vnd.kubernetes.protobuf", 200, "application/json"),
        ("/apis/apps/v1", "text/plain", 406, "application/json"),
        ("/version", "application/yaml", 406, "application/yaml"),
        ("/version", "application/yaml,*/*;q=0.1", 200, "application/json"),
        (f"{NS}/pods/none", "application/yaml;as=Table;v=v1;g=meta.k8s.io", 404, "application/json"),
        ("/api/v1/namespaces/default/", "application/json", 200, "application/json"),
        ("/api/v1/namespaces/", "application/json", 200, "application/json"),
    ],
)
async def test_accepted_media_types_by_endpoint(
    harness: ServerHarness, path: str, accept: str, code: int, form: str
) -> None:
    reply = await harness.get(path, headers={"accept": accept})
    assert (reply.status, reply.header("Content-Type")) == (code, form)


async def test_unknown_media_types_are_rejected(harness: ServerHarness) -> None:
    plain = {"accept": "text/plain"}
    assert (await harness.get("/apis", headers=plain)).message.startswith("only the following media types")
    assert (await harness.get("/api", headers=plain)).message.startswith("406: Not Acceptable\n\nAvailable")
    assert (await harness.get("/version", headers=plain)).message.endswith("representations: application/json")


async def test_self_links_of_clients_are_dropped(harness: ServerHarness) -> None:
    await harness.make(f"{NS}/configmaps", {"metadata": {"name": "x"}})
    reply = await harness.patch(f"{NS}/configmaps/x", {"metadata": {"selfLink": "/here"}})
    assert "selfLink" not in reply.json["metadata"]


async def test_watches_in_yaml_are_rejected(harness: ServerHarness) -> None:
    reply = await harness.get(f"{NS}/configmaps?watch=1", headers={"accept": "application/yaml"})
    assert reply.status == 406
    assert b"stream=watch" in reply.body


async def test_a_full_page_has_a_continue_token_if_more_follows(harness: ServerHarness) -> None:
    for name, labels in (("a", {"l": "1"}), ("b", {"l": "1"}), ("c", {})):
        await harness.make(f"{NS}/configmaps", {"metadata": {"name": name, "labels": labels}})
    first = (await harness.get(f"{NS}/configmaps?limit=2&labelSelector=l")).json
    token = first["metadata"]["continue"]
    rest = (await harness.get(f"{NS}/configmaps?limit=2&labelSelector=l&continue={token}")).json
    assert (rest["items"], "continue" in rest["metadata"]) == ([], False)
    assert "continue" not in (await harness.get(f"{NS}/configmaps?limit=1&labelSelector=!l")).json["metadata"]


async def test_reviews_have_no_table(harness: ServerHarness) -> None:
    review = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert (await harness.post(path, review)).status == 201
    reply = await harness.post(path, review, headers=TABLE)
    assert (reply.status, reply.json["reason"]) == (406, "NotAcceptable")


async def test_field_labels_differ_between_versions(harness: ServerHarness) -> None:
    event = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "action": "a",
        "reason": "r",
        "type": "Normal",
        "reportingController": "x",
        "reportingInstance": "y",
        "regarding": {"namespace": "default"},
    }
    await harness.post("/apis/events.k8s.io/v1/namespaces/default/events", event)
    for _ in range(2):
        for path in (
            "/apis/events.k8s.io/v1/events?fieldSelector=reportingController%3Dx",
            "/api/v1/events?fieldSelector=source%3Dx",
        ):
            assert [each["metadata"]["name"] for each in (await harness.get(path)).json["items"]] == ["e"]
