"""Reviews of authorization.k8s.io and authentication.k8s.io, which are answered directly and never stored."""

from __future__ import annotations

from setpoint.kinds.internal_form import internal_form
from setpoint.kinds.strategy import Context, Strategy
from setpoint.meta.errors import BadRequest
from setpoint.meta.field import Errors, forbidden, invalid, required
from setpoint.meta.names import label_value
from setpoint.meta.objectmeta import validate_label_name
from setpoint.meta.objects import Obj, ObjView

_PATH_FORM = {"path": "", "verb": ""}
_SELECTORS = (("fieldSelector", False), ("labelSelector", True))


def _validate_attributes(spec: ObjView, errs: Errors) -> None:
    """Validate that the review is about a resource or about a path, not both."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        shown = None if path is None else internal_form(path, _PATH_FORM)
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errs.append(invalid("spec", shown, text))


def validate_selectors(spec: ObjView, errs: Errors) -> None:
    attributes = spec.get("resourceAttributes") or {}
    for name, of_labels in _SELECTORS:
        if (selector := attributes.get(name)) is not None:
            _validate_selector(selector, of_labels, f"spec.resourceAttributes.{name}", errs)


def _validate_selector(selector: ObjView, of_labels: bool, path: str, errs: Errors) -> None:
    raw, requirements = selector.get("rawSelector", ""), selector.get("requirements") or ()
    if raw and requirements:
        errs.append(invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements"))
    if not raw and not requirements:
        text = f"when {path} is specified, requirements or rawSelector is required"
        errs.append(required(f"{path}.requirements", text))
    for i, requirement in enumerate(requirements):
        _validate_requirement(requirement, of_labels, f"{path}.requirements[{i}]", errs)


def _validate_requirement(requirement: ObjView, of_labels: bool, path: str, errs: Errors) -> None:
    """Validate a requirement. Unknown operators are accepted: the evaluation handles them."""
    operator, values, key = (requirement.get(name) or "" for name in ("operator", "values", "key"))
    if not of_labels and not key:
        errs.append(required(f"{path}.key", "must be specified"))
    if operator in ("In", "NotIn"):
        if not values:
            errs.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist") and values:
        text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        errs.append(forbidden(f"{path}.values", text))
    if of_labels:
        validate_label_name(key, f"{path}.key", errs)
        for i, value in enumerate(values):
            errs.extend(invalid(f"{path}.values[{i}]", value, text) for text in label_value(value))


def _validate_empty_metadata(obj: Obj, errs: Errors, allowed: frozenset[str] = frozenset()) -> None:
    meta = obj["metadata"]
    if any(value and key != "managedFields" and key not in allowed for key, value in meta.items()):
        text = "must be empty except for namespace" if allowed else "must be empty"
        errs.append(invalid("metadata", meta, text))


class ReviewStrategy(Strategy):
    """The strategy of a review, which has no name: only `validate` is used."""

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return []

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        """Discard the status that the client sent, which the result replaces."""


def _validate_subject(spec: ObjView, errs: Errors) -> None:
    _validate_attributes(spec, errs)
    if not spec.get("user") and not spec.get("groups"):
        errs.append(invalid("spec.user", spec.get("user", ""), "at least one of user or group must be specified"))
    validate_selectors(spec, errs)


class SubjectAccessReviewStrategy(ReviewStrategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_subject(obj["spec"], errs)
        _validate_empty_metadata(obj, errs)


class LocalSubjectAccessReviewStrategy(ReviewStrategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        spec = obj["spec"]
        _validate_subject(spec, errs)
        _validate_empty_metadata(obj, errs, frozenset({"namespace"}))
        resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if resource is not None and resource.get("namespace", "") != obj["metadata"].get("namespace", ""):
            at = "spec.resourceAttributes.namespace"
            errs.append(invalid(at, resource.get("namespace", ""), "must match metadata.namespace"))
        if path is not None:
            shown = internal_form(path, {"path": "", "verb": ""})
            errs.append(invalid("spec.nonResourceAttributes", shown, "disallowed on this kind of request"))


class SelfSubjectAccessReviewStrategy(ReviewStrategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_attributes(obj["spec"], errs)
        validate_selectors(obj["spec"], errs)
        _validate_empty_metadata(obj, errs)


class SelfSubjectRulesReviewStrategy(ReviewStrategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        """Raise BadRequest if there is no namespace."""
        if not (obj.get("spec") or {}).get("namespace"):
            raise BadRequest("no namespace on request")


class SelfSubjectReviewStrategy(ReviewStrategy):
    pass


class TokenReviewStrategy(ReviewStrategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        """Raise BadRequest if there is no token."""
        if not (obj.get("spec") or {}).get("token"):
            raise BadRequest("token is required for TokenReview in authentication")


STRATEGIES = {
    "SubjectAccessReview": SubjectAccessReviewStrategy(),
    "LocalSubjectAccessReview": LocalSubjectAccessReviewStrategy(),
    "SelfSubjectAccessReview": SelfSubjectAccessReviewStrategy(),
    "SelfSubjectRulesReview": SelfSubjectRulesReviewStrategy(),
    "SelfSubjectReview": SelfSubjectReviewStrategy(),
    "TokenReview": TokenReviewStrategy(),
}
