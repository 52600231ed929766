"""What an operator has to say about writes before they happen: declared as values, like controllers.

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
    """Raised by a webhook: the write does not happen, and whoever asked for it is told why."""

    code = 403
    reason = "Forbidden"


class Review(Generic[Spec, Status]):
    """The write that is asked for."""

    def __init__(self, kind: Kind[Spec, Status], request: Obj, client: Client) -> None:
        self.request = request
        """All of it, as the API server asks."""
        self.client = client
        """To look at other objects. Slow: somebody waits."""
        self.operation: str = request.get("operation") or ""
        """CREATE, UPDATE, DELETE or CONNECT."""
        self.user: str = (request.get("userInfo") or {}).get("username") or ""
        self.groups: tuple[str, ...] = tuple((request.get("userInfo") or {}).get("groups") or ())
        self.dry_run = bool(request.get("dryRun"))
        """Nothing will be kept: a webhook that does more than answer does not do it now."""
        self.subresource: str = request.get("subResource") or ""
        old = request.get("oldObject")
        self.old: Object[Spec, Status] | None = Object(kind, old) if old else None
        """As it is before an update or a deletion."""
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        """The write may happen, and whoever asked for it is told this."""
        if len(self.warnings) < _MOST_WARNINGS:
            self.warnings.append(" ".join(text.split())[:_LONGEST_WARNING])


@dataclass(frozen=True)
class Admission(Generic[Spec, Status]):
    """What `Validate` and `Mutate` have in common: which writes they are asked about."""

    kind: Kind[Spec, Status]
    handle: Callable[[Review[Any, Any], Any], Awaitable[None]]
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    subresource: str = ""
    """Only writes of this one, such as `status` or `scale`; `*`: of all, and of the object."""
    selector: Mapping[str, Any] | None = None
    """Only objects with such labels: a selector as objects have it, with `matchLabels` and `matchExpressions`."""
    namespace_selector: Mapping[str, Any] | None = None
    conditions: tuple[Mapping[str, str], ...] = ()
    """CEL, decided before anybody is asked: `({"name": "not-mine", "expression": "..."},)`."""
    required: bool = True
    """Without an answer the write fails. If not, it happens."""
    timeout: int = 10
    """Seconds, 30 at most."""
    side_effects: bool = False
    """It does more than answer, but not when `review.dry_run` says so."""
    name: str = ""
    """For people; by default `validate.teapots.example.com`."""

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
    """`handle(review, obj)` sees the object as it is going to be (for DELETE: as it was) and returns, or raises
    Denied."""

    verb = "validate"


@dataclass(frozen=True)
class Mutate(Admission[Spec, Status]):
    """`handle(review, obj)` changes the object, a dict, in place, or raises Denied."""

    reinvoke: bool = False
    """Ask again when others changed the object after it."""

    verb: ClassVar[str] = "mutate"


Change = Callable[[Obj], Obj | None]
"""Changes an object of its own in place, or returns another. What the object is (apiVersion, kind, name, namespace,
uid) is taken care of."""


@dataclass(frozen=True)
class Version:
    """One that is served besides the stored one, and how to get from one to the other. What the one cannot say should
    be kept in an annotation by whoever drops it: nothing may be lost on the way there and back."""

    kind: Kind[Any, Any]
    to_stored: Change
    from_stored: Change
    served: bool = True
    deprecated: str = ""
    """Whoever uses it is warned with these words."""


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
        """The CustomResourceDefinition with all versions, before it is known where they are converted."""
        found = self.stored.definition()
        versions = found["spec"]["versions"]
        for other in self.others:
            (version,) = other.kind.definition()["spec"]["versions"]
            version |= {"storage": False, "served": other.served}
            if other.deprecated:
                version |= {"deprecated": True, "deprecationWarning": other.deprecated}
            versions.append(version)
        return found
