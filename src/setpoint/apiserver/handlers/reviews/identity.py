"""TokenReview and SelfSubjectReview: whose token is this, and who am I?"""

from __future__ import annotations

from setpoint.apiserver.call import Call
from setpoint.apiserver.handlers.reviews.question import admit, answer, read, user_info
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Obj
from setpoint.meta.times import format_time


class IdentityReviews:
    def __init__(self, api: ApiServer) -> None:
        self._api = api

    async def token(self, call: Call, _: Registry, form: Form) -> Answer:
        assert call.resource is not None
        review = await call.work(read, call, call.resource)
        await admit(call, self._api.env.admission, review)
        spec = review["spec"]
        verified, error = await self._api.authenticator.review(spec["token"], spec.get("audiences") or ())
        status: Obj = {"authenticated": True} if verified is not None else {}
        status["user"] = user_info(verified.user) if verified is not None else {}
        if verified is not None and verified.audiences:
            status["audiences"] = list(verified.audiences)
        if error:
            status["error"] = error
        review["status"] = status
        return answer(call.resource, form, review)

    async def self_(self, call: Call, _: Registry, form: Form) -> Answer:
        assert call.resource is not None
        await admit(call, self._api.env.admission, await call.work(read, call, call.resource))
        status = {"userInfo": user_info(call.user)}
        return answer(call.resource, form, {"metadata": {"creationTimestamp": format_time(call.now)}, "status": status})
