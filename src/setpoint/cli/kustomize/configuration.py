"""The field specs of transformers: built-in ones, and those that kustomizations add in `configurations`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.kustomize import field_specs
from setpoint.cli.kustomize.field_specs import FieldSpec
from setpoint.cli.kustomize.references import REFERENCES
from setpoint.cli.kustomize.resource import Gvk
from setpoint.meta.body import BodyError, parse_yaml
from setpoint.meta.goformat import quote

Specs = dict[str, list[FieldSpec]]


def _built_in() -> Specs:
    return {
        "namePrefix": [field_specs.METADATA_NAME],
        "nameSuffix": [field_specs.METADATA_NAME],
        "namespace": field_specs.NAMESPACES,
        "commonLabels": field_specs.COMMON_LABELS,
        "labels": [],
        "templateLabels": field_specs.TEMPLATE_LABELS,
        "commonAnnotations": field_specs.COMMON_ANNOTATIONS,
        "varReference": field_specs.VARIABLES,
        "images": field_specs.IMAGES,
        "replicas": field_specs.REPLICAS,
    }


@dataclass
class Configuration:
    specs: Specs = field(default_factory=_built_in)
    """The field specs by their names in configurations."""
    references: dict[Gvk, list[FieldSpec]] = field(default_factory=lambda: dict(REFERENCES))

    def add(self, data: bytes, source: str) -> None:
        """Add a file of `configurations`. Raise Failed."""
        try:
            given, _ = parse_yaml(data)
        except BodyError as error:
            raise Failed(f"{source}: {error}") from None
        if not isinstance(given, dict | None):
            raise Failed(f"{source}: a configuration is a mapping")
        for name, entries in (given or {}).items():
            if name == "nameReference":
                for entry in entries or ():
                    self._refer(_gvk(entry), [spec_of(one) for one in entry.get("fieldSpecs") or ()])
            elif name in self.specs:
                self.specs[name] = _merged(self.specs[name], [spec_of(one) for one in entries or ()])
            else:
                raise Failed(f"{source}: unknown field {quote(str(name))}")

    def take(self, other: Configuration) -> None:
        for name, specs in other.specs.items():
            self.specs[name] = _merged(self.specs[name], specs)
        for gvk, specs in other.references.items():
            self._refer(gvk, specs)

    def _refer(self, gvk: Gvk, specs: list[FieldSpec]) -> None:
        self.references[gvk] = _merged(self.references.get(gvk, []), specs)


def _merged(first: list[FieldSpec], second: list[FieldSpec]) -> list[FieldSpec]:
    known = {(spec.path, spec.gvk) for spec in first}
    return first + [spec for spec in second if (spec.path, spec.gvk) not in known]


def _gvk(given: Any) -> Gvk:
    if not isinstance(given, dict):
        raise Failed("a field specification is a mapping")
    return Gvk(str(given.get("kind") or ""), str(given.get("group") or ""), str(given.get("version") or ""))


def spec_of(given: Any) -> FieldSpec:
    """Parse a field spec. Raise Failed."""
    gvk = _gvk(given)
    if not given.get("path"):
        raise Failed("a field specification has no path")
    return FieldSpec(str(given["path"]), gvk, bool(given.get("create")))
