"""SelfSubjectAccessReview: may I do that?"""

from __future__ import annotations

from setpoint.kinds.authorization.reviews import (
    ReviewStrategy,
    validate_attributes,
    validate_empty_metadata,
    validate_selectors,
)
from setpoint.kinds.strategy import Context, Obj
from setpoint.meta.field import Errors


class SelfSubjectAccessReviewStrategy(ReviewStrategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        validate_attributes(obj["spec"], errs)
        validate_selectors(obj["spec"], errs)
        validate_empty_metadata(obj, errs)


STRATEGY = SelfSubjectAccessReviewStrategy()
