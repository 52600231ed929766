"""Models of dataclasses, msgspec and pydantic: decoding, encoding and schemas."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from setpoint.sdk import Kind, ModelProblem
from setpoint.sdk.models import read, schema, write


class Colour(Enum):
    BROWN = "brown"
    WHITE = "white"


@dataclass
class Lid:
    tight: bool = True


@dataclass
class Pot:
    cups: Annotated[int, {"minimum": 1}]
    name: str = "x"
    colour: Colour = Colour.BROWN
    lid: Lid | None = None
    tags: dict[str, str] = field(default_factory=dict)
    size: Literal["small", "large"] = "small"
    port: int | str = 80
    klass: str = field(default="", metadata={"name": "class"})


class StructPot(msgspec.Struct):
    cups: Annotated[int, msgspec.Meta(ge=1, le=12)]
    tags: list[str] = []


class PydanticPot(pydantic.BaseModel):
    cups: int = pydantic.Field(ge=1, le=12, description="how many")
    spout: str | None = None


def test_a_dataclass_is_decoded_and_encoded() -> None:
    found = read(Pot, {"cups": 2, "lid": {"tight": False}, "colour": "white", "class": "k", "port": "http"})
    assert found == Pot(2, colour=Colour.WHITE, lid=Lid(False), klass="k", port="http")
    assert write(found) == {
        "cups": 2,
        "name": "x",
        "colour": "white",
        "lid": {"tight": False},
        "tags": {},
        "size": "small",
        "port": "http",
        "class": "k",
    }


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "Pot.cups is missing"),
        ({"cups": "2"}, "Pot.cups: expected int, not str"),
        ({"cups": True}, "Pot.cups: expected int, not bool"),
        ({"cups": 1, "lid": {"tight": 1}}, "Pot.lid.tight: expected bool, not int"),
        ({"cups": 1, "size": "huge"}, "Pot.size is 'huge'"),
        ({"cups": 1, "tags": []}, "Pot.tags: expected a map, not list"),
        ([], "Pot: expected an object, not list"),
    ],
)
def test_values_that_do_not_fit_the_model_are_reported(value: Any, problem: str) -> None:
    with pytest.raises(ModelProblem, match=problem):
        read(Pot, value)


def test_the_schema_of_a_dataclass() -> None:
    found = schema(Pot)
    assert found["required"] == ["cups"]
    properties = found["properties"]
    assert properties["cups"] == {"type": "integer", "format": "int64", "minimum": 1}
    assert properties["colour"] == {"type": "string", "enum": ["brown", "white"], "default": "brown"}
    assert properties["lid"]["nullable"] is True
    assert properties["lid"]["properties"]["tight"] == {"type": "boolean", "default": True}
    assert properties["port"] == {"x-kubernetes-int-or-string": True, "default": 80}
    assert properties["size"]["enum"] == ["small", "large"]
    assert properties["tags"]["additionalProperties"] == {"type": "string"}
    assert "class" in properties


def test_msgspec_structs_are_supported() -> None:
    assert read(StructPot, {"cups": 3}) == StructPot(3)
    assert write(StructPot(3, ["a"])) == {"cups": 3, "tags": ["a"]}
    assert schema(StructPot)["properties"]["cups"] == {
        "type": "integer",
        "format": "int64",
        "minimum": 1,
        "maximum": 12,
    }
    with pytest.raises(ModelProblem, match="cups"):
        read(StructPot, {"cups": 0})


def test_pydantic_models_are_supported() -> None:
    assert read(PydanticPot, {"cups": 3}) == PydanticPot(cups=3)
    assert write(PydanticPot(cups=3)) == {"cups": 3}
    found = schema(PydanticPot)
    assert found["required"] == ["cups"]
    assert found["properties"]["cups"]["maximum"] == 12
    assert found["properties"]["cups"]["description"] == "how many"
    with pytest.raises(ModelProblem, match="cups"):
        read(PydanticPot, {"cups": 0})


@dataclass
class Endless:
    inner: Endless | None = None


@dataclass
class Strange:
    what: complex = 0j


def test_types_without_a_schema_are_rejected() -> None:
    with pytest.raises(ModelProblem, match="contains itself"):
        schema(Endless)
    with pytest.raises(ModelProblem, match="cannot be expressed"):
        schema(Strange)


def test_a_definition_needs_a_group_and_a_model() -> None:
    with pytest.raises(ModelProblem):
        Kind("v1", "Thing", spec=Pot).definition()
    assert Kind("a.example/v1", "Box", plural="boxes", spec=Lid).definition()["metadata"]["name"] == "boxes.a.example"


@pytest.mark.parametrize(
    ("kind", "plural", "namespaced"),
    [
        (Kind("networking.k8s.io/v1", "Ingress"), "ingresses", True),
        (Kind("v1", "Endpoints"), "endpoints", True),
        (Kind("v1", "Node"), "nodes", False),
        (Kind("example.com/v1", "Policy"), "policies", True),
        (Kind("example.com/v1", "Gateway"), "gateways", True),
        (Kind("example.com/v1", "Box"), "boxes", True),
        (Kind("example.com/v1", "Ox", plural="oxen", namespaced=False), "oxen", False),
    ],
)
def test_plural_and_names_of_a_kind(kind: Kind[Any, Any], plural: str, namespaced: bool) -> None:
    assert (kind.plural_name, kind.namespaced) == (plural, namespaced)
