"""Kinds: built-in ones by name, and custom ones defined by models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from setpoint.client.resources import BY_KIND
from setpoint.meta.objects import Obj
from setpoint.sdk import models

if TYPE_CHECKING:
    # For type checkers only: defaults of type variables require Python 3.13 at run time.
    from typing_extensions import TypeVar

    Spec = TypeVar("Spec", default=Any)
    Status = TypeVar("Status", default=Any)
else:
    from typing import TypeVar

    Spec = TypeVar("Spec")
    Status = TypeVar("Status")


@dataclass(frozen=True)
class Column:
    """An additional printer column of `kubectl get`."""

    name: str
    path: str
    """JSONPath of the value, such as `.spec.replicas`."""
    type: str = "string"
    wide: bool = False
    """Whether the column is shown only with `-o wide`."""


@dataclass(frozen=True)
class Scale:
    """The fields of the scale subresource, for `kubectl scale` and autoscalers."""

    spec: str = ".spec.replicas"
    status: str = ".status.replicas"
    selector: str = ""
    """The status field with the Pods' label selector as text, which autoscalers require; empty if there is none."""


@dataclass(frozen=True)
class Kind(Generic[Spec, Status]):
    """A built-in kind, `Kind("apps/v1", "Deployment")`, or a custom one with models of its spec and status:

    Teapot = Kind("example.com/v1", "Teapot", spec=TeapotSpec, status=TeapotStatus)
    """

    api_version: str
    kind: str
    spec: type[Spec] | None = None
    status: type[Status] | None = None
    plural: str = ""
    """The plural; the default is the English plural, or the known one of a built-in kind."""
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    scale: Scale | None = None
    rules: tuple[Obj, ...] = field(default=())
    """CEL validation rules of the spec: `({"rule": "self.min <= self.max", "message": "..."},)`."""

    def __post_init__(self) -> None:
        built_in = BY_KIND.get(self.ref)
        if built_in is not None:
            object.__setattr__(self, "plural", built_in.plural)
            object.__setattr__(self, "namespaced", built_in.namespaced)

    @property
    def ref(self) -> tuple[str, str]:
        """The (apiVersion, kind) pair that clients accept."""
        return self.api_version, self.kind

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def plural_name(self) -> str:
        return self.plural or _plural(self.kind.lower())

    def definition(self) -> Obj:
        """Return the CustomResourceDefinition of this kind. Raise ModelProblem if a model has no structural schema."""
        group, _, version = self.api_version.rpartition("/")
        if not group or self.spec is None:
            raise models.ModelProblem(f"{self.kind}: only a kind with a group and a model of its spec can be defined")
        spec = models.schema(self.spec)
        if self.rules:
            spec["x-kubernetes-validations"] = [dict(rule) for rule in self.rules]
        status: Obj = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        if self.status is not None:
            status = models.schema(self.status)
            status.pop("required", None)  # the status is filled step by step, so no field of it is required
            status.setdefault("properties", {}).setdefault("conditions", _CONDITIONS)
        served: Obj = {
            "name": version,
            "served": True,
            "storage": True,
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "required": ["spec"],
                    "properties": {"spec": spec, "status": status},
                }
            },
            "subresources": {"status": {}},
        }
        if self.scale is not None:
            paths = {"specReplicasPath": self.scale.spec, "statusReplicasPath": self.scale.status}
            if self.scale.selector:
                paths["labelSelectorPath"] = self.scale.selector
            served["subresources"]["scale"] = paths
        if self.columns:
            served["additionalPrinterColumns"] = [_column(column) for column in self.columns]
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.plural_name}.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced" if self.namespaced else "Cluster",
                "names": {
                    "plural": self.plural_name,
                    "singular": self.kind.lower(),
                    "kind": self.kind,
                    "shortNames": list(self.short),
                    "categories": list(self.categories),
                },
                "versions": [served],
            },
        }


class Object(Generic[Spec, Status]):
    """One read-only object: `obj.spec.cups`, or `obj["spec"]["cups"]` for fields without a model."""

    def __init__(self, kind: Kind[Spec, Status], raw: Obj) -> None:
        self.kind = kind
        self.raw = raw
        """The object as the server returned it. It is shared and must not be changed."""
        self.name: str = raw["metadata"]["name"]
        self.namespace: str = raw["metadata"].get("namespace", "")
        self.uid: str = raw["metadata"].get("uid", "")
        self.generation: int = raw["metadata"].get("generation", 0)
        self.labels: dict[str, str] = raw["metadata"].get("labels") or {}
        self.annotations: dict[str, str] = raw["metadata"].get("annotations") or {}
        self.deleting = bool(raw["metadata"].get("deletionTimestamp"))
        self._spec: Any = None

    @property
    def spec(self) -> Spec:
        """The spec as an instance of the kind's model. Raise ModelProblem if it does not fit."""
        if self._spec is None:
            self._spec = models.read(self.kind.spec, self.raw.get("spec"))
        found: Spec = self._spec
        return found

    @property
    def status(self) -> Status | None:
        """The status as it was last written; None before the first write."""
        if not self.raw.get("status"):
            return None
        found: Status = models.read(self.kind.status, self.raw["status"])
        return found

    def __getitem__(self, key: str) -> Any:
        return self.raw[key]

    def __repr__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"<{self.kind.kind} {where}>"


def _plural(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"


def _column(column: Column) -> Obj:
    found: Obj = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return {**found, "priority": 1} if column.wide else found


_CONDITIONS: Obj = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type", "status", "lastTransitionTime", "reason", "message"],
        "properties": {
            "type": {"type": "string", "maxLength": 316},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
            "message": {"type": "string", "maxLength": 32768},
        },
    },
}
