"""SubjectAccessReview: may that user do that?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.authorization.reviews import (
    ReviewStrategy,
    validate_attributes,
    validate_empty_metadata,
    validate_selectors,
)
from setpoint.kinds.strategy import Context, Obj
from setpoint.meta.field import Errors, invalid


def validate_subject(spec: Mapping[str, Any], errs: Errors) -> None:
    validate_attributes(spec, errs)
    if not spec.get("user") and not spec.get("groups"):
        errs.append(invalid("spec.user", spec.get("user", ""), "at least one of user or group must be specified"))
    validate_selectors(spec, errs)


class SubjectAccessReviewStrategy(ReviewStrategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        validate_subject(obj["spec"], errs)
        validate_empty_metadata(obj, errs)


STRATEGY = SubjectAccessReviewStrategy()
