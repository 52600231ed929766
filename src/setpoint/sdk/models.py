"""Typed views of objects: a dataclass, a msgspec Struct or a pydantic model for `spec` or `status`.

The library is detected from the class itself; msgspec and pydantic are optional dependencies. Durations (`1m30s`) and
quantities (`10Gi`) are texts in specs; `seconds` and `compare_quantities` evaluate them.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from datetime import datetime
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from setpoint.meta.objects import Obj
from setpoint.meta.quantity import compare as compare_quantities
from setpoint.meta.times import parse_duration

__all__ = ["compare_quantities", "seconds"]


_LEVELS = 32
"""The maximum nesting depth of a model; a recursive model has no structural schema."""
_SCALARS: dict[Any, Obj] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
    bytes: {"type": "string", "format": "byte"},
}
_LIMITS = {
    "ge": "minimum",
    "le": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
    "multiple_of": "multipleOf",
}


class ModelProblem(TypeError):
    """A class cannot be a model, or a value does not fit it; the message names the field and the reason."""


def read(model: type[Any] | None, value: Any) -> Any:
    """Return the value as an instance of the model, or unchanged without one. Raise ModelProblem if it does not fit."""
    if model is None:
        return value
    value = {} if value is None else value
    try:
        if _is_msgspec(model):
            import msgspec

            return msgspec.convert(value, model, strict=True)
        if _is_pydantic(model):
            return model.model_validate(value)
        return _dataclass(model, value, model.__name__)
    except ModelProblem:
        raise
    except Exception as error:
        raise ModelProblem(f"{model.__name__}: {error}") from error


def write(value: Any) -> Any:
    """Return an instance, or a value that contains instances, as plain values without the fields that are None."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        from setpoint.meta.times import format_time

        return format_time(value)
    if isinstance(value, dict):
        return {str(key): write(each) for key, each in value.items() if each is not None}
    if isinstance(value, (list, tuple)):
        return [write(each) for each in value]
    model = type(value)
    if _is_msgspec(model):
        import msgspec

        return write(msgspec.to_builtins(value))
    if _is_pydantic(model):
        return write(value.model_dump(mode="json", by_alias=True, exclude_none=True))
    if dataclasses.is_dataclass(value):
        named = {_name(field): getattr(value, field.name) for field in dataclasses.fields(value)}
        return {key: write(each) for key, each in named.items() if each is not None}
    raise ModelProblem(f"{model.__name__} is neither plain nor a model")


def schema(model: type[Any]) -> Obj:
    """Return the structural schema of the model. Raise ModelProblem for types that have none."""
    return _schema(model, model.__name__, 0)


# -- dataclasses ----------------------------------------------------------------------------------------------------


def _name(field: dataclasses.Field[Any]) -> str:
    """Return the field's name in objects, which can differ from the attribute: `field(metadata={"name": "class"})`."""
    return str(field.metadata.get("name", field.name))


def _dataclass(model: type[Any], value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise ModelProblem(f"{path}: expected an object, not {type(value).__name__}")
    hints = get_type_hints(model)
    given: Obj = {}
    for field in dataclasses.fields(model):
        name = _name(field)
        if name in value:
            given[field.name] = _typed(hints[field.name], value[name], f"{path}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ModelProblem(f"{path}.{name} is missing")
    return model(**given)


def _typed(hint: Any, value: Any, path: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        problems = []
        for each in args:
            if each is not type(None):
                try:
                    return _typed(each, value, path)
                except ModelProblem as problem:
                    problems.append(str(problem))
        raise ModelProblem("; ".join(problems))
    if origin is Literal:
        if value not in args:
            raise ModelProblem(f"{path} is {value!r}, not one of {', '.join(map(repr, args))}")
        return value
    if origin in (list, tuple):
        if not isinstance(value, list):
            raise ModelProblem(f"{path}: expected a list, not {type(value).__name__}")
        items = [_typed(args[0], each, f"{path}[{at}]") for at, each in enumerate(value)]
        return tuple(items) if origin is tuple else items
    if origin is dict:
        if not isinstance(value, dict):
            raise ModelProblem(f"{path}: expected a map, not {type(value).__name__}")
        return {key: _typed(args[1], each, f"{path}.{key}") for key, each in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass(hint, value, path)
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError as error:
            raise ModelProblem(f"{path}: {error}") from None
    if hint is datetime:
        from setpoint.meta.times import parse_time

        return parse_time(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ModelProblem(f"{path}: expected {hint.__name__}, not {type(value).__name__}")
    return value


# -- schemas --------------------------------------------------------------------------------------------------------


def _schema(hint: Any, path: str, level: int) -> Obj:
    if level > _LEVELS:
        raise ModelProblem(f"{path}: a model that contains itself has no structural schema")
    origin, args = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return {**_schema(args[0], path, level), **_annotated(args[1:])}
    if hint is Any:
        return {"x-kubernetes-preserve-unknown-fields": True}
    if origin in (Union, types.UnionType):
        return _union([each for each in args if each is not type(None)], type(None) in args, path, level)
    if origin is Literal:
        return {**_scalar(type(args[0]), path), "enum": list(args)}
    if origin in (list, tuple):
        return {"type": "array", "items": _schema(args[0] if args else Any, f"{path}[]", level + 1)}
    if origin is dict:
        inner = _schema(args[1], f"{path}{{}}", level + 1)
        return {"type": "object", "additionalProperties": inner}
    if isinstance(hint, type) and issubclass(hint, Enum):
        values = [each.value for each in hint]
        return {**_scalar(type(values[0]), path), "enum": values}
    if hint is dict:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    fields = _fields(hint)
    if fields is None:
        return _scalar(hint, path)
    properties = {name: _property(each, f"{path}.{name}", level) for name, each in fields.items()}
    found: Obj = {"type": "object", "properties": properties}
    if required := [name for name, each in fields.items() if each.required]:
        found["required"] = required
    if hint.__doc__ and not hint.__doc__.startswith(f"{hint.__name__}("):
        found["description"] = " ".join(hint.__doc__.split())
    return found


class _Field(typing.NamedTuple):
    hint: Any
    required: bool
    default: Any
    extra: Obj


def _property(field: _Field, path: str, level: int) -> Obj:
    found = _schema(field.hint, path, level + 1)
    if not field.required and field.default not in (None, dataclasses.MISSING):
        found = {**found, "default": write(field.default)}
    return {**found, **field.extra}


def _fields(hint: Any) -> dict[str, _Field] | None:
    """Return the fields of a model by their names in objects; None if `hint` is not a model."""
    if not isinstance(hint, type):
        return None
    if _is_msgspec(hint):
        import msgspec

        return {
            each.encode_name: _Field(
                each.type, each.required, None if each.default is msgspec.NODEFAULT else each.default, {}
            )
            for each in msgspec.structs.fields(hint)
        }
    if _is_pydantic(hint):
        model: Any = hint
        return {
            each.alias or name: _Field(
                typing.Annotated[each.annotation, *each.metadata] if each.metadata else each.annotation,
                each.is_required(),
                None if each.is_required() else each.get_default(call_default_factory=True),
                {"description": each.description} if each.description else {},
            )
            for name, each in model.model_fields.items()
        }
    if not dataclasses.is_dataclass(hint):
        return None
    hints = get_type_hints(hint, include_extras=True)
    found = {}
    for field in dataclasses.fields(hint):
        default: Any = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        extra = dict(field.metadata.get("schema", {}))
        found[_name(field)] = _Field(hints[field.name], default is dataclasses.MISSING, default, extra)
    return found


def _union(args: list[Any], nullable: bool, path: str, level: int) -> Obj:
    if set(args) == {int, str}:
        found: Obj = {"x-kubernetes-int-or-string": True}
    elif len(args) == 1:
        found = _schema(args[0], path, level)
    else:
        raise ModelProblem(f"{path}: the only unions in a structural schema are `int | str` and `X | None`")
    return {**found, "nullable": True} if nullable else found


def _scalar(hint: Any, path: str) -> Obj:
    found = _SCALARS.get(hint)
    if found is None:
        raise ModelProblem(f"{path}: {hint!r} cannot be expressed in a structural schema")
    return dict(found)


def _annotated(extras: typing.Iterable[Any]) -> Obj:
    """Return the schema constraints of `Annotated[int, {"minimum": 1}]`, and of its msgspec and pydantic
    equivalents."""
    found: Obj = {}
    for extra in extras:
        if isinstance(extra, dict):
            found |= extra
            continue
        for name, keyword in _LIMITS.items():
            if (value := getattr(extra, name, None)) is not None:
                found[keyword] = value
    return found


def _is_msgspec(model: Any) -> bool:
    loaded = sys.modules.get("msgspec")
    return loaded is not None and isinstance(model, type) and issubclass(model, loaded.Struct)


def _is_pydantic(model: Any) -> bool:
    loaded = sys.modules.get("pydantic")
    return loaded is not None and isinstance(model, type) and issubclass(model, loaded.BaseModel)


def seconds(duration: str) -> float:
    """Return the seconds of a duration such as `1m30s`. Raise ValueError if it is invalid."""
    return parse_duration(duration) / 1e9
