"""SelfSubjectRulesReview: all that I may do in a namespace."""

from __future__ import annotations

from setpoint.kinds.authorization.reviews import ReviewStrategy
from setpoint.kinds.strategy import Context, Obj
from setpoint.meta.errors import BadRequest
from setpoint.meta.field import Errors


class SelfSubjectRulesReviewStrategy(ReviewStrategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        """Raises BadRequest: without a namespace there is no question."""
        if not (obj.get("spec") or {}).get("namespace"):
            raise BadRequest("no namespace on request")


STRATEGY = SelfSubjectRulesReviewStrategy()
