"""Writes the field tables of the built-in kinds: `python tools/make_field_tables.py [OUTPUT]`.

Sources: the JSON schemas in the `kubernetes-validate` package (types, list types, merge keys, required fields) and
`field_facts.txt` beside this file (order, presence and type names, which no published schema has). The output is the
same, byte for byte, for the same sources.

Output, a line each so that a reader need not parse what it does not use: first {"apps/v1/Deployment": definition, ...},
then [definition, [field, ...], 1 if atomic] where a field is [name, type, presence, {the rest, when there is any}].
`kinds/tables.py` reads it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]

VERSION = "v1.37.0"
FACTS = Path(__file__).with_name("field_facts.txt")
OUTPUT = Path(__file__).parents[1] / "src" / "setpoint" / "kinds" / "data" / "fields.jsonl"

SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "microtime",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Duration": "duration",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "any",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": "any",
}
SCALARS = {"boolean": "bool", "number": "float", "bool": "bool", "any": "any"}
TOKEN = re.compile(
    r"(?P<embedded>(?:\w+\.)*)(?P<name>[$\w-]+)(?P<presence>!\?|!|\?|)(?::(?P<go>[^=]+))?(?:=(?P<default>.+))?"
)


class Fact:
    """One field of one line of the facts."""

    def __init__(self, token: str) -> None:
        match = TOKEN.fullmatch(token)
        if match is None:
            raise SystemExit(f"cannot read {token!r}")
        self.embedded = match["embedded"].rstrip(".")
        self.name = match["name"]
        self.presence = {"": "omit", "?": "keep", "!": "always", "!?": "always"}[match["presence"]]
        self.null = match["presence"] == "!?"
        self.go = match["go"] or ""
        self.default = json.loads(match["default"]) if match["default"] else None


def read_facts() -> tuple[dict[str, list[Fact]], dict[str, str]]:
    facts: dict[str, list[Fact]] = {}
    kinds: dict[str, str] = {}
    for line in FACTS.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        definition, *tokens = line.split()
        if tokens and tokens[0].startswith("@"):
            kinds[tokens.pop(0)[1:]] = definition
        facts[definition] = [Fact(token) for token in tokens]
    return facts, kinds


def read_schemas() -> dict[str, Any]:
    package = Path(kubernetes_validate.__file__).parent
    path = package / "kubernetes-json-schema" / f"{VERSION}-local" / "_definitions.json"
    schemas: dict[str, Any] = json.loads(path.read_text())["$defs"]
    return schemas


def type_of_schema(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        definition = str(schema["$ref"]).removeprefix("#/$defs/")
        return SPECIAL.get(definition, definition)
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    kind = next(one for one in kinds if one != "null")
    if kind == "string":
        return "bytes" if schema.get("format") == "byte" else "string"
    if kind == "integer":
        return str(schema["format"])
    if kind == "array":
        return "[]" + type_of_schema(schema["items"])
    if kind == "object":
        return "{}" + type_of_schema(schema["additionalProperties"])
    return SCALARS[kind]


def type_of_fact(text: str) -> str:
    """For definitions that the schemas lack the facts have the whole type."""
    if text.startswith("[]uint8"):
        return "bytes"
    if text.startswith("[]"):
        return "[]" + type_of_fact(text[2:])
    if text.startswith("map[string]"):
        return "{}" + type_of_fact(text.removeprefix("map[string]"))
    return SPECIAL.get(text, SCALARS.get(text, text or "string"))


def field_row(fact: Fact, schema: dict[str, Any] | None, required: bool) -> list[Any]:
    more: dict[str, Any] = {}
    if schema is None:
        type_text = type_of_fact(fact.go)
    else:
        type_text = type_of_schema(schema)
        more["go"] = fact.go
        more["list"] = schema.get("x-kubernetes-list-type", "").replace("atomic", "")
        more["keys"] = schema.get("x-kubernetes-list-map-keys", [])
        more["atomic"] = schema.get("x-kubernetes-map-type") == "atomic"
        more["granular"] = schema.get("x-kubernetes-map-type") == "granular" and "$ref" in schema
        more["strategy"] = schema.get("x-kubernetes-patch-strategy", "")
        more["merge_key"] = schema.get("x-kubernetes-patch-merge-key", "")
    more["required"] = required
    more["embedded"] = fact.embedded
    more["null"] = fact.null
    more["default"] = fact.default
    more = {key: more[key] for key in sorted(more) if more[key]}
    row = [fact.name, type_text, fact.presence]
    return [*row, more] if more else row


def make_tables() -> bytes:
    facts, kinds = read_facts()
    schemas = read_schemas()
    lines: list[Any] = []
    for name in sorted(facts):
        schema = schemas.get(name, {})
        properties = schema.get("properties", {})
        if schema and set(properties) != {fact.name for fact in facts[name]}:
            raise SystemExit(f"{name}: facts and schema disagree on the fields")
        required = schema.get("required", [])
        rows = [field_row(fact, properties.get(fact.name), fact.name in required) for fact in facts[name]]
        atomic = schema.get("x-kubernetes-map-type") == "atomic"
        lines.append([name, rows, 1] if atomic else [name, rows])
        for gvk in schema.get("x-kubernetes-group-version-kind", []):
            prefix = f"{gvk['group']}/" if gvk["group"] else ""
            kinds[f"{prefix}{gvk['version']}/{gvk['kind']}"] = name
    lines.insert(0, dict(sorted(kinds.items())))
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()


if __name__ == "__main__":
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    output.write_bytes(make_tables())
    print(f"{output}: {output.stat().st_size} bytes")
