from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from setpoint.kinds import tables
from setpoint.meta.schema import ListType, Presence, Shape, Type

ROOT = Path(__file__).parents[3]
CORE = "io.k8s.api.core.v1"


def load_tool(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_field_tables_are_up_to_date() -> None:
    pytest.importorskip("kubernetes_validate")
    tool = load_tool("make_field_tables")
    assert tool.make_tables() == tool.OUTPUT.read_bytes(), "run tools/make_field_tables.py"


def test_typed_dicts_are_up_to_date() -> None:
    tool = load_tool("make_typed_kinds")
    checked_in = {path.name: path.read_text() for path in tool.FOLDER.glob("*.py") if path.name != "__init__.py"}
    assert tool.make_modules() == checked_in, "run tools/make_typed_kinds.py"


def test_kinds_have_definitions() -> None:
    assert tables.definition_for("", "v1", "Pod") == f"{CORE}.Pod"
    assert tables.definition_for("apps", "v1", "Deployment") == "io.k8s.api.apps.v1.Deployment"
    assert tables.definition_for("meta.k8s.io", "v1", "Table") == "io.k8s.apimachinery.pkg.apis.meta.v1.Table"
    with pytest.raises(KeyError):
        tables.definition_for("apps", "v1", "Pod")


def test_fields_have_order_and_presence() -> None:
    spec = tables.type_of(f"{CORE}.PodSpec")
    assert list(spec.fields)[:4] == ["volumes", "initContainers", "containers", "ephemeralContainers"]
    assert spec.fields["containers"].presence is Presence.ALWAYS
    assert spec.fields["hostNetwork"].presence is Presence.OMIT
    assert spec.fields["priority"].presence is Presence.KEEP
    pod = tables.type_of(f"{CORE}.Pod")
    assert list(pod.fields) == ["kind", "apiVersion", "metadata", "spec", "status"]
    assert pod.fields["spec"].type is spec


def test_merge_rules_of_lists_and_maps() -> None:
    spec = tables.type_of(f"{CORE}.PodSpec")
    containers = spec.fields["containers"]
    assert containers.type.list_type is ListType.MAP
    assert containers.type.list_keys == ("name",)
    assert containers.merge_key == "name"
    assert containers.patch_strategy == {"merge"}
    assert spec.fields["volumes"].patch_strategy == {"merge", "retainKeys"}
    assert spec.fields["tolerations"].type.list_type is ListType.ATOMIC
    assert spec.fields["nodeSelector"].type.atomic
    meta = tables.type_of("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    assert meta.fields["finalizers"].type.list_type is ListType.SET
    assert not meta.fields["labels"].type.atomic
    port = tables.type_of(f"{CORE}.ContainerPort").fields["protocol"]
    assert port.default == "TCP"


def test_a_field_may_be_atomic_where_its_definition_is_not() -> None:
    deployment = tables.type_of("io.k8s.api.apps.v1.DeploymentSpec")
    selector = deployment.fields["selector"].type
    assert selector.atomic and selector.nullable  # written as null when absent
    assert selector.fields is tables.type_of("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector").fields


def test_types_are_named_as_decoding_errors_name_them() -> None:
    spec = tables.type_of(f"{CORE}.PodSpec")
    assert spec.go == "v1.PodSpec"
    assert spec.fields["restartPolicy"].type.go == "v1.RestartPolicy"
    assert spec.fields["containers"].type.go == "[]v1.Container"
    assert spec.fields["nodeSelector"].type.go == "map[string]string"
    assert spec.fields["overhead"].type.go == "v1.ResourceList"
    assert tables.type_of(f"{CORE}.Volume").fields["emptyDir"].embedded == "VolumeSource"


def test_every_definition_builds() -> None:
    kinds, lines = tables._data()
    assert set(kinds.values()) <= set(lines)
    shapes: set[Shape] = set()
    for definition in lines:
        built = tables.type_of(definition)
        assert tables.type_of(definition) is built
        shapes |= {field.type.shape for field in built.fields.values()}
    assert shapes == set(Shape) - {Shape.DURATION}  # no built-in kind has one


def test_recursive_types_refer_to_themselves() -> None:
    schema = tables.type_of(tables._SCHEMA)
    properties = schema.fields["properties"].type
    assert isinstance(properties.item, Type)
    assert properties.item is schema


def test_fields_are_read_when_they_are_asked_for() -> None:
    script = """
from setpoint.kinds.tables import _fields, type_of
deployment = type_of("io.k8s.api.apps.v1.Deployment")
print(_fields.cache_info().currsize, deployment.name)
spec = deployment.fields["spec"].type
print(_fields.cache_info().currsize, spec.go)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["0 io.k8s.api.apps.v1.Deployment", "1 v1.DeploymentSpec"], done.stderr
