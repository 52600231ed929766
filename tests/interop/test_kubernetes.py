"""The official Python client, against a real server process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException
from server_process import ServerProcess

NAMESPACE = "official"


@pytest.fixture(scope="module")
def api(server: ServerProcess) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(str(server.kubeconfig)) as made:
        client.CoreV1Api(made).create_namespace({"metadata": {"name": NAMESPACE}})
        yield made


@pytest.fixture
def core(api: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api)


def config_map(name: str, **data: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"set": "a"}), data=data)


def deployment(name: str) -> client.V1Deployment:
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"app": name}),
        spec=client.V1PodSpec(containers=[client.V1Container(name="c", image="i")]),
    )
    selector = client.V1LabelSelector(match_labels={"app": name})
    spec = client.V1DeploymentSpec(replicas=2, selector=selector, template=template)
    return client.V1Deployment(metadata=client.V1ObjectMeta(name=name), spec=spec)


def refusal(caught: pytest.ExceptionInfo[ApiException]) -> tuple[int, dict[str, Any]]:
    assert caught.value.body is not None
    return caught.value.status or 0, json.loads(caught.value.body)


def test_life_cycle_of_an_object(core: client.CoreV1Api) -> None:
    made = core.create_namespaced_config_map(NAMESPACE, config_map("life", x="1"))
    assert made.metadata.creation_timestamp.tzinfo is not None
    made.data["x"] = "2"
    replaced = core.replace_namespaced_config_map("life", NAMESPACE, made)
    assert core.read_namespaced_config_map("life", NAMESPACE).data == {"x": "2"}
    assert replaced.metadata.resource_version != made.metadata.resource_version
    with pytest.raises(ApiException) as caught:
        core.replace_namespaced_config_map("life", NAMESPACE, made)
    status, body = refusal(caught)
    assert (status, body["reason"]) == (409, "Conflict")
    core.delete_namespaced_config_map("life", NAMESPACE)
    with pytest.raises(ApiException) as caught:
        core.read_namespaced_config_map("life", NAMESPACE)
    status, body = refusal(caught)
    assert (status, body["reason"], body["message"]) == (404, "NotFound", 'configmaps "life" not found')


def test_rejected_requests(core: client.CoreV1Api, api: client.ApiClient) -> None:
    core.create_namespaced_config_map(NAMESPACE, config_map("taken"))
    with pytest.raises(ApiException) as caught:
        core.create_namespaced_config_map(NAMESPACE, config_map("taken"))
    assert refusal(caught)[1]["reason"] == "AlreadyExists"
    bad = deployment("bad")
    bad.spec.template.metadata.labels = {"app": "other"}
    with pytest.raises(ApiException) as caught:
        client.AppsV1Api(api).create_namespaced_deployment(NAMESPACE, bad)
    status, body = refusal(caught)
    assert status == 422
    assert [cause["field"] for cause in body["details"]["causes"]] == ["spec.template.metadata.labels"]


def test_pages(core: client.CoreV1Api) -> None:
    for number in range(5):
        core.create_namespaced_config_map(NAMESPACE, config_map(f"page-{number}"))
    names, token, sizes = [], None, []
    while token != "":
        page = core.list_namespaced_config_map(NAMESPACE, limit=2, _continue=token, label_selector="set=a")
        names += [item.metadata.name for item in page.items]
        sizes.append(len(page.items))
        token = page.metadata._continue or ""
    assert [name for name in names if name.startswith("page-")] == [f"page-{number}" for number in range(5)]
    assert max(sizes) == 2


def test_watch(core: client.CoreV1Api) -> None:
    start = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.create_namespaced_config_map(NAMESPACE, config_map("watched"))
    core.patch_namespaced_config_map("watched", NAMESPACE, {"data": {"a": "b"}})
    core.delete_namespaced_config_map("watched", NAMESPACE)
    seen = []
    stream = watch.Watch()
    for event in stream.stream(
        core.list_namespaced_config_map,
        NAMESPACE,
        resource_version=start,
        timeout_seconds=10,
        field_selector="metadata.name=watched",
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            stream.stop()
    assert seen == [("ADDED", "watched"), ("MODIFIED", "watched"), ("DELETED", "watched")]


def test_patches_and_scale(api: client.ApiClient) -> None:
    apps = client.AppsV1Api(api)
    apps.create_namespaced_deployment(NAMESPACE, deployment("patched"))
    added = {"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "j"}]}}}}
    strategic = apps.patch_namespaced_deployment(
        "patched", NAMESPACE, added, _content_type="application/strategic-merge-patch+json"
    )
    assert len(strategic.spec.template.spec.containers) == 2
    merged = apps.patch_namespaced_deployment(
        "patched", NAMESPACE, {"spec": {"replicas": 3}}, _content_type="application/merge-patch+json"
    )
    assert merged.spec.replicas == 3
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 4}]
    patched = apps.patch_namespaced_deployment("patched", NAMESPACE, operations)  # a list is a JSON patch
    assert patched.spec.replicas == 4
    scale = apps.read_namespaced_deployment_scale("patched", NAMESPACE)
    scale.spec.replicas = 6
    apps.replace_namespaced_deployment_scale("patched", NAMESPACE, scale)
    assert apps.read_namespaced_deployment("patched", NAMESPACE).spec.replicas == 6


def test_server_side_apply_through_the_dynamic_client(api: client.ApiClient) -> None:
    resource = dynamic.DynamicClient(api).resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"x": "1"}}
    resource.server_side_apply(body=body, namespace=NAMESPACE, field_manager="one")
    body["data"] = {"x": "2"}
    with pytest.raises(dynamic.exceptions.ConflictError):
        resource.server_side_apply(body=body, namespace=NAMESPACE, field_manager="two")
    taken = resource.server_side_apply(body=body, namespace=NAMESPACE, field_manager="two", force_conflicts=True)
    assert taken.data.x == "2"
    assert [entry.manager for entry in taken.metadata.managedFields] == ["two"]


def test_dry_run_and_collections(core: client.CoreV1Api) -> None:
    core.create_namespaced_config_map(NAMESPACE, config_map("dry"), dry_run="All")
    for number in range(3):
        made = config_map(f"many-{number}")
        made.metadata.labels = {"many": "yes"}
        core.create_namespaced_config_map(NAMESPACE, made)
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="many=yes")
    names = {item.metadata.name for item in core.list_namespaced_config_map(NAMESPACE).items}
    assert not names & {"dry", "many-0", "many-1", "many-2"}


def test_discovery_and_version(api: client.ApiClient) -> None:
    assert client.VersionApi(api).get_code().major == "1"
    groups = {group.name for group in client.ApisApi(api).get_api_versions().groups}
    assert {"apps", "batch", "rbac.authorization.k8s.io"} <= groups


def test_reviews(api: client.ApiClient) -> None:
    authorization = client.AuthorizationV1Api(api)
    attributes = client.V1ResourceAttributes(verb="get", resource="pods", namespace=NAMESPACE)
    for user, allowed in (("jane", False), (None, True)):
        if user is None:
            spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
            answer = authorization.create_self_subject_access_review(client.V1SelfSubjectAccessReview(spec=spec))
        else:
            spec = client.V1SubjectAccessReviewSpec(resource_attributes=attributes, user=user)
            answer = authorization.create_subject_access_review(client.V1SubjectAccessReview(spec=spec))
        assert answer.status.allowed is allowed


def test_a_token_without_permissions(server: ServerProcess) -> None:
    limited = config.new_client_from_config(str(server.kubeconfig_with_token("limited-token")))
    with pytest.raises(ApiException) as caught:
        client.CoreV1Api(limited).list_namespaced_secret(NAMESPACE)
    status, body = refusal(caught)
    assert status == 403
    assert body["message"] == (
        'secrets is forbidden: User "limited" cannot list resource "secrets" '
        'in API group "" in the namespace "official"'
    )
