"""LocalSubjectAccessReview: may that user do that in this namespace?"""

from __future__ import annotations

from setpoint.kinds.authorization.reviews import ReviewStrategy, validate_empty_metadata
from setpoint.kinds.authorization.subjectaccessreview import validate_subject
from setpoint.kinds.internal_form import internal_form
from setpoint.kinds.strategy import Context, Obj
from setpoint.meta.field import Errors, invalid


class LocalSubjectAccessReviewStrategy(ReviewStrategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        spec = obj["spec"]
        validate_subject(spec, errs)
        validate_empty_metadata(obj, errs, frozenset({"namespace"}))
        resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if resource is not None and resource.get("namespace", "") != obj["metadata"].get("namespace", ""):
            at = "spec.resourceAttributes.namespace"
            errs.append(invalid(at, resource.get("namespace", ""), "must match metadata.namespace"))
        if path is not None:
            shown = internal_form(path, {"path": "", "verb": ""})
            errs.append(invalid("spec.nonResourceAttributes", shown, "disallowed on this kind of request"))


STRATEGY = LocalSubjectAccessReviewStrategy()
