"""Structs as messages show them: printed like the reference's internal type, with every field, under Go's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Form = Mapping[str, Any]
"""All fields in Go's order, with the value for an absent one or one of the functions below for a nested struct.

A Go name that is not the capitalized JSON name follows an equals sign: `apiGroups=APIGroups`."""


def internal_form(value: Mapping[str, Any], form: Form) -> dict[str, Any]:
    shown = {}
    for field, absent in form.items():
        name, _, go_name = field.partition("=")
        shown[go_name or name[0].upper() + name[1:]] = (
            absent(value.get(name)) if callable(absent) else value.get(name, absent)
        )
    return shown


def struct(form: Form) -> Callable[[Any], Any]:
    return lambda value: internal_form(value or {}, form)


def pointer(form: Form) -> Callable[[Any], Any]:
    return lambda value: None if value is None else internal_form(value, form)


def items(form: Form) -> Callable[[Any], Any]:
    return lambda values: None if not values else [internal_form(value, form) for value in values]


def mapping(form: Form) -> Callable[[Any], Any]:
    return lambda values: None if not values else {key: internal_form(value, form) for key, value in values.items()}
