"""Descriptions of kinds and fields: complete, short, and only of what exists."""

from __future__ import annotations

from setpoint.kinds.catalog import RESOURCES
from setpoint.kinds.documentation_data import _data, describe, describe_fields, schema_facts
from setpoint.kinds.tables import definition_for, type_of

_NOT_STRUCTS = (
    "Quantity",
    "IntOrString",
    "RawExtension",
    "Info",
    "Time",
    "MicroTime",
    "Duration",
    "FieldsV1",
    "Patch",
    "JSON",
)


def test_every_kind_and_field_has_a_description() -> None:
    for resource in RESOURCES:
        definition = definition_for(resource.group, resource.version, resource.kind)
        assert describe(definition), definition
        missing = set(type_of(definition).fields) - set(describe_fields(definition))
        assert not missing, (definition, missing)


def test_descriptions_refer_to_existing_fields() -> None:
    for definition, fields in _data().items():
        name = definition.rsplit(".", 1)[-1]
        if definition.startswith("*") or name in _NOT_STRUCTS or name.startswith("JSONSchemaPropsOr"):
            continue
        assert set(fields) - {""} <= set(type_of(definition).fields), definition


def test_descriptions_are_short_lines() -> None:
    for definition, fields in _data().items():
        for field, said in fields.items():
            assert len(said) <= 160, (definition, field)
            assert said == "" or said.endswith("."), (definition, field)


def test_lists_and_conditions_share_descriptions() -> None:
    assert describe("io.k8s.api.core.v1.PodList") == "A list of Pod objects."
    assert describe("io.k8s.api.core.v1.NodeCondition")
    assert describe_fields("io.k8s.api.core.v1.NodeCondition")["reason"]
    assert describe("com.example.Unknown") == ""


def test_a_definition_can_copy_descriptions_of_another() -> None:
    debug = describe_fields("io.k8s.api.core.v1.EphemeralContainer")
    assert debug["image"] == describe_fields("io.k8s.api.core.v1.Container")["image"]
    assert "targetContainerName" in debug
    assert "targetContainerName" not in describe_fields("io.k8s.api.core.v1.Container")


def test_facts_are_about_fields_that_exist() -> None:
    facts = schema_facts()
    for field in (*facts.default, *facts.mark):
        definition, _, name = field.rpartition(".")
        assert name in type_of(definition).fields, field
    for definition in facts.union:
        assert type_of(definition).fields
