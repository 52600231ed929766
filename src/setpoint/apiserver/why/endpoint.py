"""The endpoint: reads the question from the query, checks the rights, and answers in JSON."""

from __future__ import annotations

import re
from datetime import datetime

import orjson

from setpoint.apiserver.error_responses import METHOD_NOT_ALLOWED
from setpoint.apiserver.filters.authorize import Access, Decision, forbidden
from setpoint.apiserver.history.when import Moments
from setpoint.apiserver.negotiate import JSON
from setpoint.apiserver.request_context import RequestContext, truthy
from setpoint.apiserver.server import PathHandler
from setpoint.apiserver.why.facts import ServerFacts, Sources
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import BadRequest, MethodNotAllowed, NotFound
from setpoint.meta.moments import parse_moment
from setpoint.meta.times import unix_milliseconds
from setpoint.view.why import ask
from setpoint.view.why.question import NoHistory, Question
from setpoint.view.why.walk import MAX_DEPTH
from setpoint.view.why.wording import connect
from setpoint.wire.message import Answer, Response

_MAX_DEPTH = 100
_MAX_FIELD_LENGTH = 512
_DURATION = re.compile(r"(?:\d{1,9}(?:d|h|m|s)){1,4}", re.ASCII)


def serve_why(sources: Sources, moments: Moments) -> PathHandler:
    async def answer(ctx: RequestContext) -> Answer:
        if ctx.request.method != "GET":
            raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})
        resource = _resource(sources, ctx)
        namespace = ctx.option("namespace") if resource.namespaced else ""
        name = ctx.option("name")
        if not name or (resource.namespaced and not namespace):
            raise BadRequest("name must be given, and namespace for a namespaced resource")
        if "/" in name or "/" in namespace:
            raise BadRequest("name and namespace must not contain a slash")
        access = Access(ctx.user, "get", resource.group, resource.version, resource.plural, "", namespace, name)
        ruling = sources.authorizer.authorize(access)
        decision, reason = ruling if isinstance(ruling, tuple) else await ruling
        if decision is not Decision.ALLOW:
            raise forbidden(access, reason)
        question = Question(
            sources.reader.key_of(resource, namespace, name),
            field=_field(ctx),
            at=(await moments.find(at, ctx.now)).revision if (at := ctx.option("at")) else 0,
            since=await _since(sources, moments, ctx),
            depth=_depth(ctx),
            every=_switch(ctx, "all"),
        )
        facts = ServerFacts(sources, ctx.user, ctx if truthy(ctx.option("logs", "true")) else None)
        mode = ask.Mode.WHY_NOT if _switch(ctx, "not") else ask.Mode.AUTOMATIC
        if _switch(ctx, "conflicts"):
            mode = ask.Mode.CONFLICTS
        try:
            found = await ask.answered(facts, question, mode)
        except NoHistory:
            raise NotFound.of(resource.group, resource.plural, name) from None
        found.cluster = _cluster_uid(sources)
        connect(found)
        return Response(200, orjson.dumps(found.to_json()), [("Content-Type", JSON)])

    return answer


def _cluster_uid(sources: Sources) -> str:
    """Return the uid of the namespace kube-system, which identifies the cluster. It is no secret."""
    cache = sources.api.caches.get("core/namespaces/")
    entry = cache.get(f"{cache.prefix}kube-system") if cache is not None else None
    return str(entry.obj["metadata"].get("uid", "")) if entry is not None else ""


def _resource(sources: Sources, ctx: RequestContext) -> Resource:
    group, plural = ctx.option("group"), ctx.option("resource")
    try:
        return sources.api.registry(group, plural).resource
    except KeyError:
        raise NotFound(f"there is no resource {f'{plural}.{group}' if group else plural}") from None


def _field(ctx: RequestContext) -> str:
    field = ctx.option("field")
    if len(field) > _MAX_FIELD_LENGTH:
        raise BadRequest(f"field must not be longer than {_MAX_FIELD_LENGTH} characters")
    return field.removeprefix(".")


def _depth(ctx: RequestContext) -> int:
    text = ctx.option("depth") or str(MAX_DEPTH)
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= _MAX_DEPTH):
        raise BadRequest(f"depth must be a number from 1 to {_MAX_DEPTH}")
    return int(text)


def _switch(ctx: RequestContext, name: str) -> bool:
    return name in ctx.query and truthy(ctx.option(name))


async def _since(sources: Sources, moments: Moments, ctx: RequestContext) -> int:
    """Return the time of the parameter `since` in milliseconds since the epoch; 0 if it is not given."""
    text = ctx.option("since")
    if not text:
        return 0
    if _DURATION.fullmatch(text):
        text = f"-{text}"
    try:
        named = parse_moment(text, ctx.now)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if isinstance(named, datetime):
        return unix_milliseconds(named)
    return await sources.reader.time_of((await moments.find(text, ctx.now)).revision)
