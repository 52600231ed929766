"""A suffix of names is kept for configuration that comes from files."""

from __future__ import annotations

from setpoint.kinds.strategy import Obj
from setpoint.meta.field import Errors, invalid

_SUFFIX = ".static.k8s.io"
_TEXT = (
    f'names ending with "{_SUFFIX}" are reserved for static manifest-based configurations '
    "and cannot be managed via the API"
)


def validate_static_name(obj: Obj, errs: Errors) -> None:
    name = obj["metadata"].get("name", "")
    if name.endswith(_SUFFIX):
        errs.append(invalid("metadata.name", name, _TEXT))


def static_name_warnings(obj: Obj) -> list[str]:
    return [f"metadata.name: {_TEXT}"] if obj["metadata"].get("name", "").endswith(_SUFFIX) else []
