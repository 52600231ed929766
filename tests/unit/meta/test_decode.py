from __future__ import annotations

from typing import Any

import orjson
import pytest

from setpoint.kinds.tables import definition_for, kinds, type_of
from setpoint.meta.decode import DecodeError, decode, zero
from setpoint.meta.schema import Field, Presence, Shape, Type

POD = type_of("io.k8s.api.core.v1.Pod")
CONFIG_MAP = type_of("io.k8s.api.core.v1.ConfigMap")
SECRET = type_of("io.k8s.api.core.v1.Secret")
DEPLOYMENT = type_of("io.k8s.api.apps.v1.Deployment")
CRD = type_of(definition_for("apiextensions.k8s.io", "v1", "CustomResourceDefinition"))


def roundtrip(type: Type, value: Any) -> Any:
    return decode(type, value)


def message(type: Type, text: str) -> str:
    raw = text.encode()
    with pytest.raises(DecodeError) as caught:
        decode(type, orjson.loads(raw), raw=raw)
    return str(caught.value)


# -- presence and order -----------------------------------------------------------------------------------------------


def test_empty_fields_follow_their_presence() -> None:
    decoded = roundtrip(POD, {"spec": {"hostNetwork": False, "priority": 0, "nodeSelector": {}, "securityContext": {}}})
    assert decoded == {
        "metadata": {},
        "spec": {"containers": None, "securityContext": {}, "priority": 0},
        "status": {},
    }


def test_fields_come_in_their_order_and_maps_by_key() -> None:
    decoded = roundtrip(CONFIG_MAP, {"data": {"b": "1", "a": "2"}, "metadata": {"labels": {"z": "", "y": ""}}})
    assert orjson.dumps(decoded) == b'{"metadata":{"labels":{"y":"","z":""}},"data":{"a":"2","b":"1"}}'


def test_null_is_absent() -> None:
    value = {"metadata": {"name": None, "labels": None, "creationTimestamp": None}, "spec": None, "kind": None}
    assert roundtrip(POD, value) == zero(POD)


def test_null_inside_lists_and_maps_is_the_empty_value() -> None:
    assert roundtrip(CONFIG_MAP, {"data": {"a": None}, "binaryData": {"b": None}})["data"] == {"a": ""}
    assert roundtrip(POD, {"metadata": {"finalizers": [None]}})["metadata"] == {"finalizers": [""]}
    container = roundtrip(POD, {"spec": {"containers": [None]}})["spec"]["containers"][0]
    assert container == {"name": "", "resources": {}}


def test_absent_pointers_that_are_always_written_are_null() -> None:
    spec = zero(DEPLOYMENT)["spec"]
    assert spec["selector"] is None
    assert spec["template"] == {"metadata": {}, "spec": {"containers": None}}
    assert spec["strategy"] == {}


def test_null_is_an_empty_object() -> None:
    assert decode(POD, None) == zero(POD)


def test_deep_nesting_does_not_break_the_decoder() -> None:
    value: Any = {"type": 1}
    for _ in range(120):
        value = {"additionalProperties": value}
    with pytest.raises(DecodeError):
        decode(CRD, {"spec": {"versions": [{"schema": {"openAPIV3Schema": value}}]}})


def test_defaults_of_custom_types_are_not_shared() -> None:
    root = custom(a=keep("a", Type(Shape.ANY), default={"b": []}))
    decode(root, {})["a"]["b"].append(1)
    assert decode(root, {}) == {"a": {"b": []}}


@pytest.mark.parametrize("definition", sorted(set(kinds().values())))
def test_zero_is_what_an_empty_object_is_decoded_to(monkeypatch: pytest.MonkeyPatch, definition: str) -> None:
    expected = decode(type_of(definition), {})
    for each in structs(type_of(definition), []):
        monkeypatch.setattr(each, "compiled", {})
    assert orjson.dumps(zero(type_of(definition))) == orjson.dumps(expected), "without any decoder"


def structs(type: Type, found: list[Type]) -> list[Type]:
    """Add the type and all structs that it contains, without those in lists and maps."""
    if type.shape is Shape.STRUCT and type not in found:
        found.append(type)
        for each in type.fields.values():
            structs(each.type, found)
    return found


def test_zero_returns_a_new_value_each_time() -> None:
    first = zero(POD)
    first["metadata"]["name"] = "x"
    assert zero(POD)["metadata"] == {}


def test_nothing_is_shared_with_the_input() -> None:
    value = {"metadata": {"labels": {"a": "b"}, "finalizers": ["x"]}, "spec": {"containers": [{"args": ["y"]}]}}
    decoded = roundtrip(POD, value)
    decoded["metadata"]["labels"]["c"] = "d"
    decoded["metadata"]["finalizers"].append("z")
    decoded["spec"]["containers"][0]["args"].append("z")
    assert value == {
        "metadata": {"labels": {"a": "b"}, "finalizers": ["x"]},
        "spec": {"containers": [{"args": ["y"]}]},
    }


# -- values with one form ---------------------------------------------------------------------------------------------


def test_quantities_times_and_base64_become_canonical() -> None:
    limits = {"cpu": 0.5, "memory": "1024Mi", "pods": 3}
    decoded = roundtrip(POD, {"spec": {"containers": [{"resources": {"limits": limits}}]}})
    assert decoded["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "500m", "memory": "1Gi", "pods": "3"}
    decoded = roundtrip(POD, {"metadata": {"creationTimestamp": "2024-01-01T02:00:00+02:00"}})
    assert decoded["metadata"]["creationTimestamp"] == "2024-01-01T00:00:00Z"
    assert roundtrip(SECRET, {"data": {"k": "QUJD\nREVG"}})["data"] == {"k": "QUJDREVG"}


def test_a_number_for_a_quantity_counts_as_it_was_written() -> None:
    raw = b'{"spec":{"containers":[{"resources":{"limits":{"memory":1e3,"cpu":1.500}}}]}}'
    decoded = decode(POD, orjson.loads(raw), raw=raw)
    assert decoded["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1.500", "memory": "1e3"}


def test_the_zero_time_is_null() -> None:
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": "0001-01-01T00:00:00Z"}
    decoded = roundtrip(POD, {"status": {"conditions": [condition]}})
    assert decoded["status"]["conditions"] == [
        {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
    ]


def test_json_schemas_may_be_booleans_or_lists() -> None:
    schema = {
        "additionalProperties": False,
        "items": [{"type": "string"}],
        "dependencies": {"a": ["b"]},
        "maximum": 1.0,
    }
    value = {"spec": {"versions": [{"schema": {"openAPIV3Schema": {"additionalProperties": {"not": schema}}}}]}}
    decoded = roundtrip(CRD, value)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert decoded == {"additionalProperties": {"not": {**schema, "maximum": 1}}}


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "text", "what", "where", "go"),
    [
        (DEPLOYMENT, '{"spec":{"replicas":1.5}}', "number 1.5", "DeploymentSpec.spec.replicas", "int32"),
        (DEPLOYMENT, '{"spec":{"replicas":1.0}}', "number 1.0", "DeploymentSpec.spec.replicas", "int32"),
        (DEPLOYMENT, '{"spec":{"replicas":1e3}}', "number 1e3", "DeploymentSpec.spec.replicas", "int32"),
        (DEPLOYMENT, '{"spec":{"replicas":2147483648}}', "number 2147483648", "DeploymentSpec.spec.replicas", "int32"),
        (DEPLOYMENT, '{"spec":{"replicas":"3"}}', "string", "DeploymentSpec.spec.replicas", "int32"),
        (DEPLOYMENT, '{"spec":{"selector":"x"}}', "string", "DeploymentSpec.spec.selector", "v1.LabelSelector"),
        (DEPLOYMENT, '{"metadata":{"labels":[]}}', "array", "ObjectMeta.metadata.labels", "map[string]string"),
        (CONFIG_MAP, '{"data":{"a":1}}', "number", "ConfigMap.data", "string"),
        (CONFIG_MAP, '{"immutable":1}', "number", "ConfigMap.immutable", "bool"),
        (
            CONFIG_MAP,
            '{"metadata":{"creationTimestamp":5}}',
            "number",
            "ObjectMeta.metadata.creationTimestamp",
            "string",
        ),
        (POD, '{"spec":{"restartPolicy":1}}', "number", "PodSpec.spec.restartPolicy", "v1.RestartPolicy"),
        (POD, '{"spec":{"containers":["a"]}}', "string", "PodSpec.spec.containers", "v1.Container"),
        (
            POD,
            '{"spec":{"volumes":[{"emptyDir":1}]}}',
            "number",
            "Volume.spec.volumes.VolumeSource.emptyDir",
            "v1.EmptyDirVolumeSource",
        ),
        (
            POD,
            '{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":1.5}}}]}}',
            "number 1.5",
            "HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port",
            "int32",
        ),
        (
            CRD,
            '{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"additionalProperties":{"type":1}}}}]}}',
            "number",
            "JSONSchemaProps.spec.versions.schema.openAPIV3Schema.additionalProperties.type",
            "string",
        ),
    ],
)
def test_wrong_types(type: Type, text: str, what: str, where: str, go: str) -> None:
    assert message(type, text) == f"json: cannot unmarshal {what} into Go struct field {where} of type {go}"


@pytest.mark.parametrize(
    ("type", "text", "expected"),
    [
        (SECRET, '{"data":{"k":"!!!"}}', "illegal base64 data at input byte 0"),
        (SECRET, '{"data":{"k":"AAA"}}', "illegal base64 data at input byte 0"),
        (SECRET, '{"data":{"k":"AAAA="}}', "illegal base64 data at input byte 4"),
        (SECRET, '{"data":{"k":"AA=A"}}', "illegal base64 data at input byte 2"),
        (
            POD,
            '{"spec":{"overhead":{"cpu":"x"}}}',
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            CRD,
            '{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"additionalProperties":"x"}}}]}}',
            "boolean or JSON schema expected",
        ),
    ],
)
def test_types_with_their_own_decoder(type: Type, text: str, expected: str) -> None:
    assert message(type, text) == expected


def test_precedence_of_errors() -> None:
    first = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    assert message(CONFIG_MAP, '{"data":{"a":1},"metadata":{"name":2}}') == first
    later = message(CONFIG_MAP, '{"data":{"a":1},"metadata":{"creationTimestamp":"x"}}')
    assert later == 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'


# -- strictness -------------------------------------------------------------------------------------------------------


def test_unknown_fields_are_pruned_and_reported_in_document_order() -> None:
    value = {
        "spec": {"template": {"spec": {"containers": [{"nope": 1, "ports": [{"containerport": 1}]}]}}, "foo": {"x": 1}},
        "metadata": {"nope": 1, "Name": "x"},
        "bogus": None,
    }
    strict: list[str] = []
    decoded = decode(DEPLOYMENT, value, strict=strict)
    assert strict == [
        'unknown field "spec.template.spec.containers[0].nope"',
        'unknown field "spec.template.spec.containers[0].ports[0].containerport"',
        'unknown field "spec.foo"',
        'unknown field "metadata.nope"',
        'unknown field "metadata.Name"',
        'unknown field "bogus"',
    ]
    assert decoded["metadata"] == {}
    assert decode(DEPLOYMENT, value) == decoded


def test_duplicates_are_reported_in_document_order() -> None:
    raw = b'{"metadata":{"name":"x","name":"y","zz":1},"data":{"a":"1","a":"2"},"bogus":{"b":1,"b":2}}'
    strict: list[str] = []
    decoded = decode(CONFIG_MAP, orjson.loads(raw), strict=strict, raw=raw, duplicates=["some"])
    assert decoded["metadata"] == {"name": "y"}
    assert strict == [
        'duplicate field "metadata.name"',
        'unknown field "metadata.zz"',
        'duplicate field "data.a"',
        'unknown field "bogus"',
    ]


# -- custom types -----------------------------------------------------------------------------------------------------


def custom(shape: Shape = Shape.STRUCT, **fields: Field) -> Type:
    return Type(shape, fields=dict(fields))


def keep(name: str, type: Type, default: Any = None) -> Field:
    return Field(name, type, Presence.KEEP, default=default)


def test_custom_types_prune_and_set_defaults_without_validation() -> None:
    text, nullable = Type(Shape.STRING), Type(Shape.STRING, nullable=True)
    inner = custom(a=keep("a", text, default="x"), b=keep("b", nullable), c=keep("c", Type(Shape.INT64)))
    items = Type(Shape.LIST, item=inner)
    open_ended = Type(Shape.STRUCT, fields={"a": keep("a", inner)}, preserve_unknown=True)
    root = custom(spec=keep("spec", inner), items=keep("items", items), open=keep("open", open_ended))
    strict: list[str] = []
    value = {
        "spec": {"a": None, "b": None, "c": "not a number", "gone": 1},
        "items": [{}, {"gone": 2}, "no object"],
        "open": {"kept": {"x": 1}, "a": {"gone": 3}},
    }
    decoded = decode(root, value, strict=strict)
    assert decoded == {
        "spec": {"a": "x", "b": None, "c": "not a number"},
        "items": [{"a": "x"}, {"a": "x"}, "no object"],
        "open": {"kept": {"x": 1}, "a": {"a": "x"}},
    }
    assert strict == ['unknown field "items[1].gone"', 'unknown field "open.a.gone"', 'unknown field "spec.gone"']


def test_a_custom_type_may_hold_a_built_in_one() -> None:
    root = custom(metadata=keep("metadata", POD.fields["metadata"].type), spec=keep("spec", Type(Shape.ANY)))
    assert decode(root, {"metadata": {"name": "x", "labels": {}}, "spec": {"a": 1}}) == {
        "metadata": {"name": "x"},
        "spec": {"a": 1},
    }
    with pytest.raises(DecodeError, match=r"ObjectMeta\.name of type string"):
        decode(root, {"metadata": {"name": 1}})
