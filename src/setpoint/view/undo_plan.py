"""Plans of undo and restore, as values: ordinary requests, conflicts, warnings, and what is not done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

FIELD_MANAGER = "setpoint-undo"
JSON, JSON_PATCH, APPLY_PATCH = "application/json", "application/json-patch+json", "application/apply-patch+yaml"


class ObjectRef(NamedTuple):
    """The identity of an object in the version in which it is stored."""

    group: str
    version: str
    plural: str
    kind: str
    namespace: str
    name: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        return f"{self.collection}/{quote(self.name, safe='')}"

    @property
    def collection(self) -> str:
        place = f"/namespaces/{quote(self.namespace, safe='')}" if self.namespace else ""
        return f"/{'apis' if self.group else 'api'}/{self.api_version}{place}/{self.plural}"

    @property
    def shown(self) -> str:
        return shown_object(self._asdict())

    @property
    def is_secret(self) -> bool:
        return (self.group, self.plural) == ("", "secrets")


class Options(NamedTuple):
    """The choices of the user, beside the revision."""

    force: bool = False
    """Set back fields also if they were changed since."""
    replace: bool = False
    """Delete and create objects whose immutable fields must be changed."""
    prune: bool = False
    """Delete objects that did not exist then."""
    cascade: str = "Background"
    """The propagation policy of deletions."""


@dataclass(slots=True)
class Step:
    """One request of a plan."""

    action: str
    """`create`, `update`, `delete`, or `apply` for an object that may exist already."""
    ref: ObjectRef
    method: str
    path: str
    body: Any
    text: str = ""
    """The change in words."""
    content_type: str = JSON
    links: list[tuple[list[str | int], int]] = field(default_factory=list)
    """Places in the body that get the uid of the object that another step, by its index, has created."""
    awaits: str = ""
    """The reason of a refusal after which the request is repeated for a while: `NotFound` until a new kind or namespace
    is served, `AlreadyExists` until a deleted object is gone."""

    def to_json(self) -> dict[str, Any]:
        query = "" if self.method == "DELETE" else f"fieldManager={FIELD_MANAGER}"
        if self.action == "apply":
            query += "&force=true"
        request = {"method": self.method, "path": self.path, "query": query, "contentType": self.content_type}
        found: dict[str, Any] = {"action": self.action, "object": self.ref._asdict(), "text": self.text}
        if self.links:
            found["links"] = [{"place": place, "step": step} for place, step in self.links]
        if self.awaits:
            found["awaits"] = self.awaits
        return {**found, "request": {**request, "body": self.body}}


class Conflict(NamedTuple):
    ref: ObjectRef
    text: str
    solved_by: str = ""
    """The option that resolves it: `force` or `replace`; empty if none does."""


@dataclass(slots=True)
class Plan:
    steps: list[Step] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    not_done: list[tuple[str, str]] = field(default_factory=list)
    """Objects or fields that are left out, each with the reason."""

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": [each.to_json() for each in self.steps],
            "conflicts": [
                {"object": each.ref._asdict(), "text": each.text, "solvedBy": each.solved_by} for each in self.conflicts
            ],
            "warnings": self.warnings,
            "notDone": [{"object": what, "text": why} for what, why in self.not_done],
        }


# The functions below work on plans as JSON, as clients get them.


def shown_object(ref: Mapping[str, Any]) -> str:
    """Return the name of an object as plans show it."""
    kind = ref["kind"].lower()
    name = f"{kind}.{ref['group']}/{ref['name']}" if ref["group"] else f"{kind}/{ref['name']}"
    return f"{name} ({ref['namespace']})" if ref["namespace"] else name


def masked_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan as it is shown: without the values of Secrets, which only its requests contain."""

    def masked(step: Mapping[str, Any]) -> Mapping[str, Any]:
        ref = step["object"]
        if (ref["group"], ref["plural"]) != ("", "secrets"):
            return step
        return {**step, "request": {**step["request"], "body": "***"}}

    return {**plan, "steps": [masked(each) for each in plan["steps"]]}
