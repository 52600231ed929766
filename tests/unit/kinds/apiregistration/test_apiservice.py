from typing import Any

import pytest


@pytest.fixture
def services(lifecycle: Any) -> Any:
    return lifecycle("apiregistration.k8s.io/v1", "APIService")


def body(**spec: Any) -> dict[str, Any]:
    base = {"group": "g.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1, **spec}
    return {"metadata": {"name": f"{base['version']}.{base['group']}"}, "spec": base}


def test_local_services_are_available_at_once(services: Any) -> None:
    obj = services.created(body())
    assert services.cells(obj)["Available"] == "True" and services.cells(obj)["Service"] == "Local"
    obj = services.created(body(service={"name": "s", "namespace": "n"}))
    assert obj["spec"]["service"]["port"] == 443
    assert services.cells(obj)["Available"] == "Unknown" and services.cells(obj)["Service"] == "n/s"


def test_errors(services: Any) -> None:
    _, errors, _ = services.create({**body(), "metadata": {"name": "x"}})
    assert errors == ['metadata.name: Invalid value: "x": must be `spec.version+"."+spec.group`: "v1.g.example.com"']
    assert services.errors(body(versionPriority=1001)) == [
        "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000"
    ]
    assert services.errors(body(caBundle="YWJj")) == [
        'spec.caBundle: Invalid value: "3 bytes": local APIServices may not have a caBundle'
    ]


def test_status_update_retains_labels(services: Any) -> None:
    old = services.created(body())
    obj, errors, _ = services.update(old, "status", metadata={"labels": {"a": "b"}}, status={"conditions": []})
    assert errors == [] and "labels" not in obj["metadata"]
