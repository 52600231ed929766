"""Content negotiation: the media types of responses and of request bodies."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from setpoint.meta.errors import NotAcceptable, UnsupportedMediaType

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
_MAX_CACHED_LENGTH = 512
"""Maximum length of headers whose result is cached; clients could fill the memory with longer ones."""
_PARAMETER = re.compile(r"""[!#$%&'*+.^_`|~\w-]+=([!#$%&'*+.^_`|~\w-]+|"[^"]*")""", re.ASCII)
_OFFERED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
PROTOBUF_STREAM = f"{PROTOBUF};stream=watch"
STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"


class Form(NamedTuple):
    """The form of a response."""

    media_type: str = JSON
    transform: str = ""
    """`Table`, `PartialObjectMetadata` or `PartialObjectMetadataList`."""
    pretty: bool = False
    meta_version: str = "meta.k8s.io/v1"
    """The apiVersion of tables and partial objects."""


_MAX_CLAUSES = 50
_MAX_PARAMETERS = 50


class _Clause(NamedTuple):
    media_type: str
    params: dict[str, str]


def accepted(header: str) -> list[_Clause]:
    """Return the clauses of an Accept header in order of preference: by q, then as written."""
    found: list[tuple[float, int, _Clause]] = []
    for position, part in enumerate(header.split(",", _MAX_CLAUSES)[:_MAX_CLAUSES]):
        pieces = [piece.strip() for piece in part.split(";", _MAX_PARAMETERS)[:_MAX_PARAMETERS]]
        params = dict(piece.split("=", 1) for piece in pieces[1:] if "=" in piece)
        try:
            quality = float(params.pop("q", "1"))
        except ValueError:
            quality = 0.0
        found.append((-quality, position, _Clause(pieces[0].lower(), params)))
    found.sort(key=lambda item: item[:2])
    return [clause for _, _, clause in found]


def negotiate(
    accept: str, *, collection: bool, transforms: frozenset[str], pretty: bool = False, protobuf: bool = False
) -> Form:
    """Return the best form that the client accepts and the endpoint can write.

    `transforms` are the `as=` kinds that the endpoint offers; all but tables can be written in protobuf. `protobuf`
    says whether the objects themselves can.

    Raises NotAcceptable, in the two ways upstream has: nothing of the media types fits at all, or the media type fits
    but not with these parameters."""
    decide = _cached if len(accept) <= _MAX_CACHED_LENGTH else _negotiate
    return decide(accept, collection, transforms, pretty, protobuf)


def _negotiate(accept: str, collection: bool, transforms: frozenset[str], pretty: bool, protobuf: bool) -> Form:
    if not accept:
        return Form(JSON, pretty=pretty)
    known = False
    for media_type, params in accepted(accept):
        if media_type in ("*/*", "*"):
            return Form(JSON, pretty=pretty)
        if media_type not in (JSON, YAML, PROTOBUF):
            continue
        known = True
        kind = params.get("as")
        if kind is None:
            if media_type != PROTOBUF or protobuf:
                return Form(media_type, pretty=pretty)
        elif kind == "Table" and media_type == PROTOBUF:
            continue
        elif kind in transforms and params.get("g") == "meta.k8s.io" and params.get("v") in ("v1", "v1beta1"):
            return Form(media_type, kind, pretty, f"meta.k8s.io/{params['v']}")
    if known:
        raise NotAcceptable(f"only the following media types are accepted: {_OFFERED}")
    raise NotAcceptable(
        f"406: Not Acceptable\n\nAvailable representations: {_OFFERED}{', ' + STREAMS if collection else ''}",
        details={},
    )


_cached = lru_cache(maxsize=256)(_negotiate)


def discovery_form(accept: str, *, routed: bool) -> Form:
    """Return the form of a discovery document. Clients that accept only protobuf get JSON.

    `routed`: whether upstream's router rejects unknown media types; its message differs from that of the document."""
    try:
        return negotiate(accept, collection=False, transforms=frozenset())
    except NotAcceptable as refused:
        if any(media_type == PROTOBUF and "as" not in params for media_type, params in accepted(accept)):
            return Form()
        if routed:
            raise
        raise NotAcceptable(f"only the following media types are accepted: {_OFFERED}") from refused


def require_json(accept: str) -> None:
    if accept and not any(clause.media_type in (JSON, "*/*", "*") for clause in accepted(accept)):
        raise NotAcceptable("406: Not Acceptable\n\nAvailable representations: application/json", details={})


def body_type(content_type: str, *, protobuf: bool = True) -> str:
    """Return the media type of a request body; the default is JSON. Custom resources have no protobuf form."""
    media_type, _, params = content_type.partition(";")
    media_type = media_type.strip().lower()
    # A semicolon may end the list; every other one is followed by a parameter.
    given = params.removesuffix(";").split(";", _MAX_PARAMETERS)
    if not params.strip() or all(_PARAMETER.fullmatch(each.strip()) for each in given):
        if media_type in ("", JSON):
            return JSON
        if media_type == YAML or (media_type == PROTOBUF and protobuf):
            return media_type
    raise UnsupportedMediaType(
        f"the body of the request was in an unknown format - accepted media types include: {_OFFERED}"
    )
