"""Admission and conversion webhooks of an operator, declared as values like controllers.

async def check(review: Review, teapot: Object) -> None:
    if teapot.spec.cups > 8:
        raise Denied("no teapot holds more than 8 cups")

async def fill(review: Review, teapot: dict) -> None:
    teapot["spec"].setdefault("teas", ["green"])

operator = Operator("tea", Controller(Teapot, brew), Validate(Teapot, check), Mutate(Teapot, fill))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

from setpoint.client import Client
from setpoint.meta.errors import ApiError
from setpoint.sdk.kind import Kind, Object, Spec, Status

Obj = dict[str, Any]

_MOST_WARNINGS = 32
_LONGEST_WARNING = 256


class Denied(ApiError):
    """Raised by a webhook to reject the write; the client receives the message."""

    code = 403
    reason = "Forbidden"


class Review(Generic[Spec, Status]):
    """The write under review."""

    def __init__(self, kind: Kind[Spec, Status], request: Obj, client: Client) -> None:
        self.request = request
        """The complete admission request."""
        self.client = client
        """A client to read other objects. Reads delay the write."""
        self.operation: str = request.get("operation") or ""
        """The operation: CREATE, UPDATE, DELETE or CONNECT."""
        self.user: str = (request.get("userInfo") or {}).get("username") or ""
        self.groups: tuple[str, ...] = tuple((request.get("userInfo") or {}).get("groups") or ())
        self.dry_run = bool(request.get("dryRun"))
        """Whether nothing will be stored: a webhook with side effects must then skip them."""
        self.subresource: str = request.get("subResource") or ""
        old = request.get("oldObject")
        self.old: Object[Spec, Status] | None = Object(kind, old) if old else None
        """The object before an update or a deletion; None for other operations."""
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        """Allow the write with a warning that the client receives."""
        if len(self.warnings) < _MOST_WARNINGS:
            self.warnings.append(" ".join(text.split())[:_LONGEST_WARNING])


@dataclass(frozen=True)
class Admission(Generic[Spec, Status]):
    """The options that `Validate` and `Mutate` share: which writes they review."""

    kind: Kind[Spec, Status]
    handle: Callable[[Review[Any, Any], Any], Awaitable[None]]
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    subresource: str = ""
    """Review only writes of this subresource, such as `status` or `scale`; `*` means all and the object itself."""
    selector: Mapping[str, Any] | None = None
    """Review only objects that match this label selector, with `matchLabels` and `matchExpressions`; None means all."""
    namespace_selector: Mapping[str, Any] | None = None
    conditions: tuple[Mapping[str, str], ...] = ()
    """CEL match conditions that the API server evaluates first: `({"name": "not-mine", "expression": "..."},)`."""
    required: bool = True
    """Whether the write fails without an answer; if false, it is admitted."""
    timeout: int = 10
    """Timeout in seconds, at most 30."""
    side_effects: bool = False
    """Whether the webhook has side effects; it must skip them when `review.dry_run` is true."""
    name: str = ""
    """The name of the webhook; by default `validate.teapots.example.com`."""

    verb: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not 1 <= self.timeout <= 30:
            raise ValueError("the timeout of a webhook is between 1 and 30 seconds")
        if not self.name:
            name = f"{self.verb}.{self.kind.plural_name}.{self.kind.group or 'core'}"
            object.__setattr__(self, "name", name)

    @property
    def path(self) -> str:
        return f"/{self.verb}/{self.name}"


class Validate(Admission[Spec, Status]):
    """A validating webhook: `handle(review, obj)` gets the new object (for DELETE, the old one) and returns, or raises
    Denied."""

    verb = "validate"


@dataclass(frozen=True)
class Mutate(Admission[Spec, Status]):
    """A mutating webhook: `handle(review, obj)` changes the object, a dict, in place, or raises Denied."""

    reinvoke: bool = False
    """Whether to call the webhook again if another one changed the object after it."""

    verb: ClassVar[str] = "mutate"


Change = Callable[[Obj], Obj | None]
"""Changes a copy of an object in place, or returns another one. The SDK restores the identity (apiVersion, kind, name,
namespace, uid)."""


@dataclass(frozen=True)
class Version:
    """A served version that is not stored, with the conversions to and from the stored version.

    Conversions must be lossless: store fields without a counterpart in an annotation.
    """

    kind: Kind[Any, Any]
    to_stored: Change
    from_stored: Change
    served: bool = True
    deprecated: str = ""
    """The deprecation warning for clients of this version; empty if it is not deprecated."""


@dataclass(frozen=True)
class Convert:
    """A kind in several versions: `Convert(TeapotV2, Version(TeapotV1, upgrade, downgrade))`."""

    stored: Kind[Any, Any]
    others: tuple[Version, ...] = ()

    def __init__(self, stored: Kind[Any, Any], *others: Version) -> None:
        names = {(each.group, each.kind, each.plural_name) for each in (stored, *(other.kind for other in others))}
        if len(names) != 1 or len({each.kind.ref for each in others} | {stored.ref}) != len(others) + 1:
            raise ValueError("versions of a kind have the same group and names, and different versions")
        object.__setattr__(self, "stored", stored)
        object.__setattr__(self, "others", others)

    @property
    def definition_name(self) -> str:
        return f"{self.stored.plural_name}.{self.stored.group}"

    @property
    def path(self) -> str:
        return f"/convert/{self.definition_name}"

    def definition(self) -> Obj:
        """Return the CustomResourceDefinition with all versions, without the address of the conversion webhook."""
        found = self.stored.definition()
        versions = found["spec"]["versions"]
        for other in self.others:
            (version,) = other.kind.definition()["spec"]["versions"]
            version |= {"storage": False, "served": other.served}
            if other.deprecated:
                version |= {"deprecated": True, "deprecationWarning": other.deprecated}
            versions.append(version)
        return found
