"""The options of each verb, parsed and validated: query parameters, and for DELETE the body."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from setpoint.apiserver.request_context import RequestContext, truthy
from setpoint.meta.body import BodyError, parse_json
from setpoint.meta.caching import memoized
from setpoint.meta.errors import BadRequest, Invalid, PlainServerError
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required
from setpoint.meta.goformat import kind_of, quote
from setpoint.meta.jose import base64url_decode, base64url_encode
from setpoint.meta.objectmeta import validate_field_manager
from setpoint.meta.selectors import Selector, SelectorError, parse_fields, parse_labels

if TYPE_CHECKING:
    from setpoint.apiserver.registry import Registry

_INT64 = 2**63


def integer(text: str) -> int:
    """Parse an integer like Go's strconv.ParseInt. Raises BadRequest."""
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        raise BadRequest(f"strconv.ParseInt: parsing {quote(text)}: invalid syntax")
    value = int(text) if len(text) < 40 else _INT64
    if not -_INT64 <= value < _INT64:
        raise BadRequest(f"strconv.ParseInt: parsing {quote(text)}: value out of range")
    return value


def parse_revision(text: str) -> int:
    """Parse a resourceVersion. Raises ValueError with upstream's message."""
    if not text:
        return 0
    problem = revision_problem(text)
    if problem:
        raise ValueError(invalid("resourceVersion", text, problem).message())
    return int(text)


def revision_problem(text: str) -> str:
    """Return why `text` is not a revision, in the words of strconv.ParseUint, or "" if it is one."""
    if not (text.isascii() and text.isdigit()):
        return f"strconv.ParseUint: parsing {quote(text)}: invalid syntax"
    if len(text) > 40 or int(text) >= 2**64:
        return f"strconv.ParseUint: parsing {quote(text)}: value out of range"
    return ""


def _refuse(kind: str, errs: Errors) -> None:
    if errs:
        raise Invalid.of("meta.k8s.io", kind, "", errs)


def _dry_run(values: list[str], errs: Errors) -> bool:
    if any(value != "All" for value in values):
        errs.append(not_supported("dryRun", values, ["All"]))
    return "All" in values


def write_options(ctx: RequestContext, kind: str, *, apply: bool = False, patch: bool = False) -> bool:
    """Read dryRun, fieldManager and fieldValidation of a create, update or patch; return `force`."""
    if not ctx.query and not apply:
        ctx.field_manager = _manager_of(ctx.request.headers.get("user-agent", ""))
        return False
    errs: Errors = []
    manager = ctx.option("fieldManager")
    force = False
    if patch:
        given = "force" in ctx.query
        force = given and truthy(ctx.option("force"))
        if apply and not manager:
            errs.append(required("fieldManager", "is required for apply patch"))
        elif given and not apply:
            errs.append(forbidden("force", "may not be specified for non-apply patch"))
    validate_field_manager(manager, "fieldManager", errs)
    ctx.dry_run = _dry_run(ctx.query.get("dryRun", []), errs)
    validation = ctx.option("fieldValidation")
    if validation not in ("", "Ignore", "Warn", "Strict"):
        errs.append(not_supported("fieldValidation", validation, ("", "Ignore", "Strict", "Warn")))
    _refuse(kind, errs)
    ctx.field_manager = manager or _manager_of(ctx.request.headers.get("user-agent", ""))
    return force


@memoized(maxsize=1024)
def _manager_of(agent: str) -> str:
    """Return the field manager of a client that names none: the start of its User-Agent."""
    name = agent.split("/", 1)[0]
    return "".join(islice(filter(str.isprintable, name), 128)) or "unknown"


# -- delete -------------------------------------------------------------------------------------------------------


IGNORE_READ_ERRORS = "ignoreStoreReadErrorWithClusterBreakingPotential"


@dataclass(slots=True)
class DeleteOptions:
    grace: int | None = None
    propagation: str | None = None
    orphan: bool | None = None
    uid: str | None = None
    revision: str | None = None
    ignore_read_errors: bool = False
    """Whether to delete an object that cannot be read; deleting any other fails."""

    def as_sent(self, dry_run: bool) -> dict[str, Any]:
        """Return the options as a client sends them, without those that are not set."""
        given = {"uid": self.uid, "resourceVersion": self.revision}
        preconditions = {name: value for name, value in given.items() if value is not None}
        fields = {
            "gracePeriodSeconds": self.grace,
            "preconditions": preconditions or None,
            "orphanDependents": self.orphan,
            "propagationPolicy": self.propagation,
            "dryRun": ["All"] if dry_run else None,
        }
        return {name: value for name, value in fields.items() if value is not None}


_POLICIES = ("Foreground", "Background", "Orphan", "nil")


def delete_options(ctx: RequestContext, body: dict[str, Any] | None) -> DeleteOptions:
    """Read DeleteOptions from the body if there is one, else from the query."""
    if body is not None:
        preconditions = body.get("preconditions") or {}
        options = DeleteOptions(
            grace=body.get("gracePeriodSeconds"),
            propagation=body.get("propagationPolicy"),
            orphan=body.get("orphanDependents"),
            uid=preconditions.get("uid"),
            revision=preconditions.get("resourceVersion"),
            ignore_read_errors=bool(body.get(IGNORE_READ_ERRORS)),
        )
        dry_run = list(body.get("dryRun") or ())
    else:
        options = DeleteOptions(propagation=ctx.query.get("propagationPolicy", [None])[0])
        if "gracePeriodSeconds" in ctx.query:
            options.grace = integer(ctx.option("gracePeriodSeconds"))
        if "orphanDependents" in ctx.query:
            options.orphan = truthy(ctx.option("orphanDependents"))
        options.ignore_read_errors = IGNORE_READ_ERRORS in ctx.query and truthy(ctx.option(IGNORE_READ_ERRORS))
        options.uid, options.revision = ctx.option("uid") or None, ctx.option("resourceVersion") or None
        dry_run = ctx.query.get("dryRun", [])
    errs: Errors = []
    policy = options.propagation
    if options.orphan is not None and policy is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        errs.append(invalid("propagationPolicy", policy, text))
    if policy is not None and policy not in _POLICIES[:3]:
        errs.append(not_supported("propagationPolicy", policy, _POLICIES))
    ctx.dry_run = _dry_run(dry_run, errs)
    if options.ignore_read_errors:
        errs += [
            invalid(IGNORE_READ_ERRORS, True, f"cannot be set together with .{name}")
            for name in _conflicting_options(options, body)
        ]
    _refuse("DeleteOptions", errs)
    return options


def _conflicting_options(options: DeleteOptions, body: dict[str, Any] | None) -> Iterator[str]:
    """Return the options that cannot be combined with `IGNORE_READ_ERRORS`."""
    if options.propagation is not None:
        yield "propagationPolicy"
    if options.orphan is not None:
        yield "orphanDependents"
    if options.grace is not None:
        yield "gracePeriodSeconds"
    if options.uid or options.revision or (body is not None and body.get("preconditions") is not None):
        yield "preconditions"


# -- list and watch -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ListOptions:
    labels: Selector
    fields: Selector
    revision: int = 0
    """0 means the latest state; if it was given explicitly, any state in memory."""
    revision_given: bool = False
    match: str = ""
    limit: int = 0
    continue_token: str = ""
    timeout: int | None = None
    bookmarks: bool = False
    initial_events: bool | None = None


def selectors(ctx: RequestContext, registry: Registry) -> tuple[Selector, Selector]:
    try:
        labels = parse_labels(ctx.option("labelSelector"))
        fields = parse_fields(ctx.option("fieldSelector"))
    except SelectorError as error:
        raise BadRequest(str(error)) from None
    # The kind's strategy is used only now: most lists do not need it, and so do not load it.
    for requirement in fields.requirements:
        if requirement.key != "metadata.name" and requirement.key not in registry.strategy.field_labels:
            raise BadRequest(_unsupported_field(ctx, requirement.key))
    return labels, fields


def _unsupported_field(ctx: RequestContext, key: str) -> str:
    resource = ctx.resource
    assert resource is not None
    special = resource.strategy.unsupported_field(key)
    if special is not None:
        return special
    if len(resource.strategy.field_labels) > 2 or resource.strategy.field_labels - {
        "metadata.name",
        "metadata.namespace",
    }:
        return f"field label not supported: {key}"
    return f'"{key}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def list_options(ctx: RequestContext, watch: bool, registry: Registry) -> ListOptions:
    limit = max(0, integer(ctx.option("limit"))) if "limit" in ctx.query else 0
    timeout = integer(ctx.option("timeoutSeconds")) if "timeoutSeconds" in ctx.query else None
    labels, fields = selectors(ctx, registry)
    options = ListOptions(labels, fields, match=ctx.option("resourceVersionMatch"), limit=limit, timeout=timeout)
    options.continue_token = ctx.option("continue")
    options.bookmarks = "allowWatchBookmarks" in ctx.query and truthy(ctx.option("allowWatchBookmarks"))
    if "sendInitialEvents" in ctx.query:
        options.initial_events = truthy(ctx.option("sendInitialEvents"))
    given = ctx.option("resourceVersion")
    options.revision_given = bool(given)
    _check_match(options, given, watch)
    try:
        options.revision = parse_revision(given)
    except ValueError as error:
        if watch:
            raise PlainServerError(str(error)) from None
        raise BadRequest(f"invalid resource version: {error}") from None
    if options.continue_token and not watch and given not in ("", "0"):
        raise BadRequest("specifying resource version is not allowed when using continue")
    return options


def _check_match(options: ListOptions, revision: str, watch: bool) -> None:
    errs: Errors = []
    match, at = options.match, "resourceVersionMatch"
    with_continue = "resourceVersionMatch is forbidden when continue is provided"
    if watch:
        if options.initial_events is not None and match != "NotOlderThan":
            errs.append(forbidden(at, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
        if match:
            if options.initial_events is None:
                text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
                errs.append(forbidden(at, text))
            if match != "NotOlderThan":
                errs.append(not_supported(at, match, ["NotOlderThan"]))
        # Upstream reports it even without resourceVersionMatch, because a watch without a revision implies one.
        if options.continue_token:
            errs.append(forbidden(at, with_continue))
    else:
        if match:
            if not revision:
                errs.append(forbidden(at, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
            if options.continue_token:
                errs.append(forbidden(at, with_continue))
            if match not in ("Exact", "NotOlderThan"):
                errs.append(not_supported(at, match, ("Exact", "NotOlderThan", "")))
            if match == "Exact" and revision == "0":
                text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                errs.append(forbidden(at, text))
        if options.initial_events is not None:
            errs.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    _refuse("ListOptions", errs)


# -- continue tokens ----------------------------------------------------------------------------------------------

_TOKEN_VERSION = "meta.k8s.io/v1"
_NOT_BASE64 = re.compile("[^A-Za-z0-9_-]")
_TOKEN_FIELDS = {"v": str, "rv": int, "start": str}


def encode_continue(revision: int, start: str) -> str:
    """Encode a continue token. `start` is the first key of the next page, relative to the prefix of the list; revision
    -1 means the latest."""
    token = orjson.dumps({"v": _TOKEN_VERSION, "rv": revision, "start": start})
    return base64url_encode(token)


def decode_continue(token: str) -> tuple[int, str]:
    def refuse(why: str) -> BadRequest:
        return BadRequest(f"invalid continue token: continue key is not valid: {why}")

    bad = _NOT_BASE64.search(token)
    if bad is not None:
        raise refuse(f"illegal base64 data at input byte {bad.start()}")
    if len(token) % 4 == 1:
        raise refuse(f"illegal base64 data at input byte {len(token) - 1}")
    try:
        parsed, _ = parse_json(base64url_decode(token))
    except BodyError as error:
        raise refuse(str(error)) from None
    parsed = {} if parsed is None else parsed
    if not isinstance(parsed, dict):
        raise refuse(f"json: cannot unmarshal {kind_of(parsed)} into Go value of type storage.continueToken")
    for name, wanted in _TOKEN_FIELDS.items():
        given = parsed.get(name)
        if given is not None and (not isinstance(given, wanted) or isinstance(given, bool)):
            shown = f"number {given}" if isinstance(given, float) and wanted is int else kind_of(given)
            go = "int64" if wanted is int else "string"
            raise refuse(f"json: cannot unmarshal {shown} into Go struct field continueToken.{name} of type {go}")
    version, revision, start = parsed.get("v") or "", parsed.get("rv") or 0, parsed.get("start") or ""
    if version != _TOKEN_VERSION:
        raise refuse(f"server does not recognize this encoded version {version}")
    if revision == 0 or abs(revision) >= _INT64:
        raise refuse("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    if not start:
        raise refuse("encoded start key empty (version meta.k8s.io/v1)")
    # The key must stay below the prefix of the list.
    below = start.removeprefix("/")
    if any(part in ("", ".", "..") for part in below.split("/")):
        raise refuse(start)
    return revision, below
