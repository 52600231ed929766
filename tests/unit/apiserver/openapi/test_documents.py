"""The content of OpenAPI documents, in both dialects."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import orjson
import pytest

from setpoint.apiserver.openapi.service import OpenApi

_DEPLOYMENT = "io.k8s.api.apps.v1.Deployment"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."


@lru_cache
def document(path: str) -> Any:
    return orjson.loads(OpenApi()._write(path, "json"))


def operations(of: Any) -> list[Any]:
    return [op for item in of["paths"].values() for method, op in item.items() if method != "parameters"]


@pytest.mark.parametrize("path", [*OpenApi()._documents(), "v2"])
def test_every_reference_has_a_definition(path: str) -> None:
    text = orjson.dumps(document(path)).decode()
    for kind, name in set(re.findall(r'"\$ref":"#/(components/schemas|definitions|parameters)/([^"]+)"', text)):
        holder = document(path)
        for step in kind.split("/"):
            holder = holder[step]
        assert name in holder


@pytest.mark.parametrize("path", ["v2", "api/v1", "apis/apps/v1"])
def test_operation_ids_are_unique(path: str) -> None:
    ids = [op["operationId"] for op in operations(document(path))]
    assert len(ids) == len(set(ids))


def test_references_of_fields_by_dialect() -> None:
    ref = f"{_DEPLOYMENT}Strategy"
    v3 = document("apis/apps/v1")["components"]["schemas"][f"{_DEPLOYMENT}Spec"]["properties"]["strategy"]
    v2 = document("v2")["definitions"][f"{_DEPLOYMENT}Spec"]["properties"]["strategy"]
    said = v3.pop("description")
    assert said
    assert v3 == {
        "default": {},
        "allOf": [{"$ref": f"#/components/schemas/{ref}"}],
        "x-kubernetes-patch-strategy": "retainKeys",
    }
    assert v2 == {"description": said, "$ref": f"#/definitions/{ref}", "x-kubernetes-patch-strategy": "retainKeys"}


def test_list_types() -> None:
    ports = document("api/v1")["components"]["schemas"]["io.k8s.api.core.v1.Container"]["properties"]["ports"]
    assert ports["x-kubernetes-list-type"] == "map"
    assert ports["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    assert ports["x-kubernetes-patch-merge-key"] == "containerPort"
    assert ports["x-kubernetes-patch-strategy"] == "merge"


def test_enums_defaults_and_required_fields() -> None:
    schemas = document("api/v1")["components"]["schemas"]
    port = schemas["io.k8s.api.core.v1.ContainerPort"]
    assert port["required"] == ["containerPort"]
    assert port["properties"]["protocol"]["enum"] == ["SCTP", "TCP", "UDP"]
    assert port["properties"]["protocol"]["default"] == "TCP"
    assert port["properties"]["containerPort"]["default"] == 0
    assert "default" not in document("v2")["definitions"]["io.k8s.api.core.v1.ContainerPort"]["properties"]["protocol"]


def test_union_types_in_both_dialects() -> None:
    quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity"
    assert document("api/v1")["components"]["schemas"][quantity]["oneOf"] == [{"type": "string"}, {"type": "number"}]
    assert document("v2")["definitions"][quantity]["type"] == "string"


def test_kinds_of_shared_definitions_are_those_of_the_document() -> None:
    options = document("apis/apps/v1")["components"]["schemas"][f"{_META}DeleteOptions"]
    assert [kind["group"] for kind in options["x-kubernetes-group-version-kind"]] == ["", "apps"]
    assert len(document("v2")["definitions"][f"{_META}DeleteOptions"]["x-kubernetes-group-version-kind"]) > 50


def test_common_parameters_are_shared() -> None:
    item = document("apis/apps/v1")["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
    assert [one["name"] for one in item["parameters"]] == ["name", "namespace", "pretty"]
    assert "parameters" not in item["get"]
    names = [one["name"] for one in item["patch"]["parameters"]]
    assert names == ["dryRun", "fieldManager", "fieldValidation", "force"]


def test_parameters_that_old_clients_search_are_not_shared() -> None:
    create = document("v2")["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments"]["post"]
    inline = {one["name"] for one in create["parameters"] if "name" in one}
    assert {"dryRun", "fieldValidation", "body"} <= inline
    assert any("$ref" in one for one in create["parameters"])


@pytest.mark.parametrize(
    ("path", "method", "id_", "action", "kind"),
    [
        ("/apis/apps/v1/deployments", "get", "listAppsV1DeploymentForAllNamespaces", "list", "Deployment"),
        (
            "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
            "put",
            "replaceAppsV1NamespacedDeploymentScale",
            "put",
            "Scale",
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "delete",
            "deleteRbacAuthorizationV1CollectionClusterRole",
            "deletecollection",
            "ClusterRole",
        ),
        (
            "/api/v1/namespaces/{namespace}/pods/{name}/exec",
            "post",
            "connectCoreV1PostNamespacedPodExec",
            "connect",
            "PodExecOptions",
        ),
        (
            "/api/v1/nodes/{name}/proxy/{path}",
            "options",
            "connectCoreV1OptionsNodeProxyWithPath",
            "connect",
            "NodeProxyOptions",
        ),
        ("/api/v1/watch/namespaces/{name}", "get", "watchCoreV1Namespace", "watch", "Namespace"),
        (
            "/api/v1/namespaces/{namespace}/pods/{name}/eviction",
            "post",
            "createCoreV1NamespacedPodEviction",
            "post",
            "Eviction",
        ),
    ],
)
def test_operations(path: str, method: str, id_: str, action: str, kind: str) -> None:
    op = document("v2")["paths"][path][method]
    assert op["operationId"] == id_
    assert op["x-kubernetes-action"] == action
    assert op["x-kubernetes-group-version-kind"]["kind"] == kind


def test_responses_of_delete() -> None:
    paths = document("v2")["paths"]
    pod = paths["/api/v1/namespaces/{namespace}/pods/{name}"]["delete"]["responses"]["200"]
    assert pod["schema"]["$ref"].endswith(".Pod")
    settings = paths["/api/v1/namespaces/{namespace}/configmaps/{name}"]["delete"]["responses"]["200"]
    assert settings["schema"]["$ref"].endswith(".Status")
