from typing import Any

import pytest

OBJECT = {"type": "object"}


@pytest.fixture
def definitions(lifecycle: Any) -> Any:
    return lifecycle("apiextensions.k8s.io/v1", "CustomResourceDefinition")


def version(name: str = "v1", schema: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema or OBJECT}, **fields}


def body(*versions: dict[str, Any], **spec: Any) -> dict[str, Any]:
    base = {"group": "e.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"}, **spec}
    name = f"{base['names'].get('plural', '')}.{base['group']}"
    return {"metadata": {"name": name}, "spec": {**base, "versions": list(versions) or [version()]}}


def test_defaults(definitions: Any) -> None:
    obj = definitions.created(body())
    assert obj["spec"]["names"] == {"plural": "foos", "kind": "Foo", "singular": "foo", "listKind": "FooList"}
    assert obj["spec"]["conversion"] == {"strategy": "None"}
    assert obj["status"] == {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]}
    assert definitions.cells(obj)["Versions"] == "v1(storage)"


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        (body(group="nodots"), ['spec.group: Invalid value: "nodots": should be a domain with at least one dot']),
        (body(scope="X"), ['spec.scope: Unsupported value: "X": supported values: "Cluster", "Namespaced"']),
        (
            body({"name": "v1", "served": True, "storage": True}),
            ["spec.versions[0].schema.openAPIV3Schema: Required value"],
        ),
        (
            body(version(additionalPrinterColumns=[{"name": "a", "type": "string", "jsonPath": "x"}])),
            [
                'spec.additionalPrinterColumns[0].JSONPath: Invalid value: "x": must be a simple json path starting with .'
            ],
        ),
        (
            body(version(deprecationWarning="x")),
            ['spec.versions[0].deprecationWarning: Invalid value: "x": can only be set for deprecated versions'],
        ),
        (
            body(conversion={"strategy": "Webhook"}),
            [
                "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
                "spec.conversion.conversionReviewVersions: Required value",
            ],
        ),
        (
            body(group="x.k8s.io"),
            [
                "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval "
                "annotation "
                '"api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111'
            ],
        ),
        (
            body(version(subresources={"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".spec.n"}})),
            [
                'spec.subresources.scale.statusReplicasPath: Invalid value: ".spec.n": should be a json path under .status'
            ],
        ),
    ],
)
def test_errors(definitions: Any, given: dict[str, Any], errors: list[str]) -> None:
    assert definitions.errors(given) == errors


def test_errors_of_shared_settings_are_reported_once(definitions: Any) -> None:
    bad = {"type": "object", "properties": {"a": {"type": "array"}}}
    path = "openAPIV3Schema.properties[a].items: Required value: must be specified"
    assert definitions.errors(body(version(schema=bad))) == [f"spec.validation.{path}"]
    two = body(version(), version("v2", schema=bad, storage=False))
    assert definitions.errors(two) == [f"spec.versions[1].schema.{path}"]


def test_stored_versions_only_grow(definitions: Any) -> None:
    old = definitions.created(body())
    moved, errors, _ = definitions.update(old, spec={"versions": [version(storage=False), version("v2")]})
    assert errors == [] and moved["status"]["storedVersions"] == ["v1", "v2"]
    assert moved["metadata"]["generation"] == 2
    _, errors, _ = definitions.update(moved, spec={"versions": [version("v2")]})
    assert errors[0].startswith('status.storedVersions[0]: Invalid value: "v1": missing from spec.versions')


def test_names_are_fixed_once_established(definitions: Any) -> None:
    old = definitions.created(body())
    old["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    _, errors, _ = definitions.update(old, spec={"scope": "Cluster"})
    assert errors == ['spec.scope: Invalid value: "Cluster": field is immutable']


def test_unknown_formats_cause_a_warning(definitions: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "format": "zz"}}}
    assert definitions.warnings(body(version(schema=schema))) == ['unrecognized format "zz"']
