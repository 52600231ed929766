"""Compares the table of CRI's messages in `src/setpoint/node/cri/messages.py` with the published definition.

    .venv/bin/python tools/check_cri_messages.py path/of/cri-api/pkg/apis/runtime/v1/api.proto

The definition is not a part of this repository. Every message, field and method of the table must be in it with the
same number and type, and the enumerations must have the same values. Fields of the definition that the table does not
have are listed: they are ignored when messages are decoded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from setpoint.node.cri import enums
from setpoint.node.cri.messages import CRI_TABLE, GET_CONTAINER_EVENTS, METHODS, Method
from setpoint.wire.proto_messages import TableField, parse_table

_COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_TOKEN = re.compile(r'"[^"]*"|[\w.]+|[{}()<>=;,\[\]]')
_ENUMS: dict[str, tuple[type[IntEnum], str]] = {
    "Protocol": (enums.PortProtocol, ""),
    "MountPropagation": (enums.MountPropagation, "PROPAGATION_"),
    "NamespaceMode": (enums.NamespaceMode, ""),
    "SupplementalGroupsPolicy": (enums.SupplementalGroupsPolicy, ""),
    "ProfileType": (enums.ProfileType, ""),
    "PodSandboxState": (enums.SandboxState, "SANDBOX_"),
    "ContainerState": (enums.ContainerState, "CONTAINER_"),
    "ContainerEventType": (enums.ContainerEventType, "CONTAINER_"),
    "CgroupDriver": (enums.CgroupDriver, ""),
}
"""Our enumerations by their names in the definition, with the prefix of the values' names there."""


@dataclass
class Definition:
    """The content of a file in protobuf's language, as far as it is compared."""

    messages: dict[str, dict[str, TableField]] = field(default_factory=dict)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    methods: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Names of the messages of request and response by `/package.Service/Method`."""


def parse_definition(text: str) -> Definition:
    """Parse the subset of protobuf's language that the definition of CRI uses. Raise ValueError."""
    tokens = iter(_TOKEN.findall(_COMMENTS.sub(" ", text)))
    found, package = Definition(), ""
    for token in tokens:
        if token == "package":
            package = next(tokens)
        elif token == "message":
            _parse_message(next(tokens), tokens, found)
        elif token == "enum":
            _parse_enum(next(tokens), tokens, found)
        elif token == "service":
            _parse_service(f"{package}.{next(tokens)}", tokens, found)
    return found


def _parse_message(name: str, tokens: Iterator[str], found: Definition) -> None:
    fields = found.messages[name] = {}
    _expect("{", tokens)
    for token in tokens:
        match token:
            case "}":
                return
            case "enum":
                _parse_enum(next(tokens), tokens, found)
            case "message" | "oneof" | "reserved":
                raise ValueError(f"{name}: {token} is not supported")
            case "map":
                _expect("<", tokens)
                key = next(tokens)
                _expect(",", tokens)
                value = next(tokens)
                _expect(">", tokens)
                one = TableField(next(tokens), _number(tokens), value, key=key)
                fields[one.name] = one
            case "repeated":
                kind = next(tokens)
                one = TableField(next(tokens), _number(tokens), kind, repeated=True)
                fields[one.name] = one
            case _:
                one = TableField(next(tokens), _number(tokens), token)
                fields[one.name] = one
    raise ValueError(f"{name} has no end")


def _parse_enum(name: str, tokens: Iterator[str], found: Definition) -> None:
    values = found.enums[name] = {}
    _expect("{", tokens)
    for token in tokens:
        if token == "}":
            return
        values[token] = _number(tokens)
    raise ValueError(f"{name} has no end")


def _parse_service(name: str, tokens: Iterator[str], found: Definition) -> None:
    _expect("{", tokens)
    for token in tokens:
        if token == "}":
            return
        if token == "rpc":
            method, request = next(tokens), _parenthesized(tokens)
            _expect("returns", tokens)
            found.methods[f"/{name}/{method}"] = request, _parenthesized(tokens)
            _expect("{", tokens)
            _expect("}", tokens)
    raise ValueError(f"{name} has no end")


def _parenthesized(tokens: Iterator[str]) -> str:
    _expect("(", tokens)
    *_, name = iter(lambda: next(tokens), ")")  # without the word "stream"
    return name


def _number(tokens: Iterator[str]) -> int:
    """Return the number of `= number [options];`."""
    _expect("=", tokens)
    number = int(next(tokens))
    for token in tokens:
        if token == ";":
            return number
    raise ValueError("a semicolon is missing")


def _expect(wanted: str, tokens: Iterator[str]) -> None:
    if (token := next(tokens)) != wanted:
        raise ValueError(f"{wanted!r} was expected instead of {token!r}")


def differences(
    table: str, defined: Definition, methods: Mapping[str, Method], constants: Mapping[str, tuple[type[IntEnum], str]]
) -> Iterator[str]:
    """Yield what the table, the methods and the enumerations have and the definition has not, or has otherwise."""
    for name, fields in parse_table(table):
        if name not in defined.messages:
            yield f"{name} is not defined"
            continue
        for one in fields:
            other = defined.messages[name].get(one.name)
            if other is not None and other.type in defined.enums:
                other = other._replace(type="int32")
            if one != other:
                yield f"{name}.{one.name} is {one}, and defined as {other}"
    for method in methods.values():
        names = method.request.DESCRIPTOR.name, method.response.DESCRIPTOR.name
        if defined.methods.get(method.path) != names:
            yield f"{method.path} has the messages {names}, and is defined with {defined.methods.get(method.path)}"
    for name, (enumeration, prefix) in constants.items():
        ours = {_comparable(one.name): one.value for one in enumeration}
        theirs = {
            _comparable(value.removeprefix(prefix).removesuffix("_EVENT")): number
            for value, number in defined.enums.get(name, {}).items()
        }
        if ours != theirs:
            yield f"the enumeration {name} has {ours}, and is defined with {theirs}"
    signals = {
        name.removeprefix("SIGNAL_").replace("PLUS", "+").replace("MINUS", "-"): number
        for name, number in defined.enums.get("Signal", {}).items()
        if number
    }
    if signals != enums.STOP_SIGNALS:
        yield f"the signals differ in {dict(signals.items() ^ enums.STOP_SIGNALS.items())}"


def omitted_fields(table: str, defined: Definition) -> Iterator[str]:
    """Yield the fields of the table's messages that only the definition has."""
    for name, fields in parse_table(table):
        names = {one.name for one in fields}
        for one in defined.messages.get(name, {}):
            if one not in names:
                yield f"{name}.{one}"


def _comparable(name: str) -> str:
    return name.replace("_", "").lower()


def main(path: str) -> int:
    defined = parse_definition(Path(path).read_text())
    methods = METHODS | {"GetContainerEvents": GET_CONTAINER_EVENTS}
    found = [*differences(CRI_TABLE, defined, methods, _ENUMS)]
    for one in found:
        print(one)
    count = sum(1 for _ in parse_table(CRI_TABLE))
    print(f"{count} messages, {len(methods)} methods, {len(found)} differences")
    print("fields that the table omits:", ", ".join(omitted_fields(CRI_TABLE, defined)) or "none")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
