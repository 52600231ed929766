from __future__ import annotations

import pytest

from setpoint.meta.schema import Field, ListType, Presence, Shape, Type

_STRING = Type(Shape.STRING, go="string")
_INT = Type(Shape.INT32, go="int32")
_BOOL = Type(Shape.BOOL, go="bool")


def _struct(name: str, *fields: Field, atomic: bool = False) -> Type:
    return Type(Shape.STRUCT, name=name, go=f"v1.{name}", fields={field.name: field for field in fields}, atomic=atomic)


def _list(item: Type, list_type: ListType = ListType.ATOMIC, *keys: str) -> Type:
    return Type(Shape.LIST, go="[]", item=item, list_type=list_type, list_keys=keys)


_LABELS = Type(Shape.MAP, go="map[string]string", item=_STRING)
_METADATA = _struct(
    "ObjectMeta",
    *(Field(name, _STRING) for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")),
    Field("generation", _INT),
    Field("labels", _LABELS),
    Field("annotations", _LABELS),
    Field("finalizers", _list(_STRING, ListType.SET)),
    Field("managedFields", _list(Type(Shape.ANY))),
)
_PORT = _struct(
    "Port",
    Field("port", _INT, Presence.ALWAYS),
    Field("protocol", _STRING, default="TCP"),
    Field("title", _STRING),
)
_ENV = _struct("EnvVar", Field("name", _STRING, Presence.ALWAYS), Field("value", _STRING))
_CONTAINER = _struct(
    "Container",
    Field("name", _STRING, Presence.ALWAYS),
    Field("image", _STRING),
    Field("args", _list(_STRING)),
    Field("ports", _list(_PORT, ListType.MAP, "port", "protocol")),
    Field("env", _list(_ENV, ListType.MAP, "name")),
    Field("resources", _struct("Resources", Field("limits", _LABELS)), Presence.ALWAYS),
)
_SPEC = _struct(
    "Spec",
    Field("replicas", _INT),
    Field("paused", _BOOL),
    Field("selector", _struct("Selector", Field("matchLabels", _LABELS), atomic=True), Presence.ALWAYS),
    Field("containers", _list(_CONTAINER, ListType.MAP, "name"), Presence.ALWAYS),
    Field("raw", Type(Shape.ANY, go="any")),
    Field("free", Type(Shape.ANY)),
)
_STATUS = _struct(
    "Status",
    Field("replicas", _INT),
    Field(
        "conditions",
        _list(_struct("Condition", Field("type", _STRING), Field("status", _STRING)), ListType.MAP, "type"),
    ),
)


@pytest.fixture(scope="session")
def workload() -> Type:
    """Return a type with every feature of field ownership: maps, sets, keyed lists, atomic and free-form parts."""
    return _struct(
        "Workload",
        Field("apiVersion", _STRING),
        Field("kind", _STRING),
        Field("metadata", _METADATA, Presence.ALWAYS),
        Field("spec", _SPEC, Presence.ALWAYS),
        Field("status", _STATUS, Presence.ALWAYS),
        Field("data", _LABELS),
    )
