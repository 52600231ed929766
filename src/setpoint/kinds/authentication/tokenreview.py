"""TokenReview: whose token is this?"""

from __future__ import annotations

from setpoint.kinds.authorization.reviews import ReviewStrategy
from setpoint.kinds.strategy import Context, Obj
from setpoint.meta.errors import BadRequest
from setpoint.meta.field import Errors


class TokenReviewStrategy(ReviewStrategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        """Raises BadRequest: without a token there is no question."""
        if not (obj.get("spec") or {}).get("token"):
            raise BadRequest("token is required for TokenReview in authentication")


STRATEGY = TokenReviewStrategy()
