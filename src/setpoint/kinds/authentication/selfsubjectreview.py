"""SelfSubjectReview: who am I?"""

from __future__ import annotations

from setpoint.kinds.authorization.reviews import ReviewStrategy


class SelfSubjectReviewStrategy(ReviewStrategy):
    pass


STRATEGY = SelfSubjectReviewStrategy()
