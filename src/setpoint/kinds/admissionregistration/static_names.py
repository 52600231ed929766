"""The name suffix that is reserved for configuration from files."""

from __future__ import annotations

from setpoint.kinds.strategy import Context, Obj
from setpoint.meta.field import Errors, invalid

SUFFIX = ".static.k8s.io"
_TEXT = (
    f'names ending with "{SUFFIX}" are reserved for static manifest-based configurations '
    "and cannot be managed via the API"
)


def validate_static_name(obj: Obj, errs: Errors, ctx: Context) -> None:
    name = obj["metadata"].get("name", "")
    if name.endswith(SUFFIX) and not ctx.from_file:
        errs.append(invalid("metadata.name", name, _TEXT))


def static_name_warnings(obj: Obj) -> list[str]:
    return [f"metadata.name: {_TEXT}"] if obj["metadata"].get("name", "").endswith(SUFFIX) else []
