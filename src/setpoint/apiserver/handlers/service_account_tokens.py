"""POST to `/token` of a ServiceAccount, which issues a token, and the OpenID documents with which others verify it."""

from __future__ import annotations

from datetime import timedelta

import orjson

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.handlers.reviews import ordered_metadata, read_review, respond_review
from setpoint.apiserver.negotiate import JSON, Form
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.tokens import Claims, Lookup, ServiceAccountTokens
from setpoint.apiserver.write_path import WritePath
from setpoint.kinds.catalog import Resource
from setpoint.kinds.core.serviceaccount import default_token_request, validate_token_request
from setpoint.meta.errors import BadRequest, Conflict, Invalid, MethodNotAllowed, NotAcceptable, NotFound
from setpoint.meta.field import Errors, invalid
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time
from setpoint.wire.message import Answer, Response

GROUP, KIND = "authentication.k8s.io", "TokenRequest"
RESOURCE = Resource(GROUP, "v1", KIND, "tokenrequests")
_PROJECTED = 3607
"""Expiration in seconds that kubelets request. Such a token is valid for a year, but warns after this time."""
_YEAR = 365 * 24 * 3600
_WEBHOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")


class TokenRequests:
    def __init__(self, tokens: ServiceAccountTokens, lookup: Lookup, *, longest: int = 0, extends: bool = True) -> None:
        """`longest` is the maximum lifetime in seconds; 0 means no limit. `extends`: whether tokens of kubelets are
        valid for longer than requested."""
        self._tokens = tokens
        self._lookup = lookup
        self._longest = longest
        self._extends = extends

    async def create(self, ctx: RequestContext, registry: Registry, form: Form) -> Answer:
        request = await ctx.compute(self._read, ctx)
        attrs = WritePath(ctx, registry).attributes("CREATE", request, None, ctx.target.name)
        await registry.env.admission.mutate(attrs)
        account = self._account(ctx, registry, request)
        meta, spec = request["metadata"], request["spec"]
        meta |= {key: account["metadata"][key] for key in ("name", "namespace", "uid")}
        meta["creationTimestamp"] = format_time(ctx.now)
        spec["audiences"] = spec.get("audiences") or list(self._tokens.audiences)
        errs: Errors = []
        validate_token_request(request, errs)
        if errs:
            raise Invalid.of(GROUP, KIND, "", errs)
        await registry.env.admission.validate(attrs)
        bound = self._bound(ctx, spec.get("boundObjectRef"))
        if 0 < self._longest < spec["expirationSeconds"]:
            requested = spec["expirationSeconds"]
            ctx.warn(f"requested expiration of {requested} seconds shortened to {self._longest} seconds")
            spec["expirationSeconds"] = self._longest
        claims = self._claims(ctx, registry, account, spec, bound)
        token = self._tokens.sign(claims)
        if ctx.audit is not None:
            ctx.audit.annotations["authentication.kubernetes.io/issued-credential-id"] = f"JTI={claims['jti']}"
        ends = ctx.now + timedelta(seconds=spec["expirationSeconds"])
        request["status"] = {"token": token, "expirationTimestamp": format_time(ends)}
        return respond_review(
            RESOURCE, form, {"metadata": ordered_metadata(meta), "spec": spec, "status": request["status"]}
        )

    def _read(self, ctx: RequestContext) -> Obj:
        request = read_review(ctx, RESOURCE, default_token_request, keep_system_fields=True)
        name = request["metadata"].get("name")
        if name and name != ctx.target.name:
            text = "must match the service account name if specified"
            raise Invalid.of(GROUP, KIND, ctx.target.name, [invalid("metadata.name", name, text)])
        return request

    def _account(self, ctx: RequestContext, registry: Registry, request: Obj) -> Obj:
        account = registry.get(ctx.target.namespace, ctx.target.name).obj
        given, uid = request["metadata"].get("uid"), account["metadata"]["uid"]
        if given and given != uid:
            why = f"the UID in the token request ({given}) does not match the UID of the service account ({uid})"
            raise Conflict.of(GROUP, KIND, ctx.target.name, why)
        return account

    def _bound(self, ctx: RequestContext, reference: Obj | None) -> dict[str, Obj]:
        """Return the objects to which the token is bound, by claim: at most one and, for a Pod, its node."""
        if reference is None:
            return {}
        kind, version = reference.get("kind", ""), reference.get("apiVersion", "")
        group = version.rpartition("/")[0]
        shown = f"{version if group else '/' + version}, Kind={kind}"
        if group == "admissionregistration.k8s.io" and version.endswith("/v1") and kind in _WEBHOOKS:
            gate = "APIServerWebhookAuthenticationToken"
            raise BadRequest(f"cannot bind token to object of type {shown} (feature gate {gate} is disabled)")
        if group or kind not in ("Pod", "Node", "Secret"):
            raise BadRequest(f"cannot bind token to object of type {shown}")
        name = reference.get("name", "")
        if not name:
            raise BadRequest("Name parameter required.")
        entry = self._lookup(f"{kind.lower()}s", "" if kind == "Node" else ctx.target.namespace, name)
        if entry is None:
            raise NotFound.of("", f"{kind.lower()}s", name)
        found = {kind.lower(): _reference(entry.obj)}
        if kind == "Pod":
            spec = entry.obj["spec"]
            if spec.get("serviceAccountName") != ctx.target.name:
                raise BadRequest(
                    f'cannot bind token for serviceaccount "{ctx.target.name}" to pod running with different '
                    "serviceaccount name."
                )
            if spec.get("nodeName"):
                node = self._lookup("nodes", "", spec["nodeName"])
                found["node"] = _reference(node.obj) if node is not None else {"name": spec["nodeName"]}
        wanted = reference.get("uid")
        if wanted and wanted != entry.obj["metadata"]["uid"]:
            why = (
                f"the UID in the bound object reference ({wanted}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise Conflict.of("", kind, name, why)
        return found

    def _claims(
        self, ctx: RequestContext, registry: Registry, account: Obj, spec: Obj, bound: dict[str, Obj]
    ) -> Claims:
        now, lasts = int(ctx.now.timestamp()), spec["expirationSeconds"]
        meta = account["metadata"]
        private: Obj = {"namespace": meta["namespace"], "serviceaccount": _reference(account), **bound}
        if (
            self._extends
            and "pod" in bound
            and lasts == _PROJECTED
            and set(spec["audiences"]) <= set(self._tokens.audiences)
        ):
            private["warnafter"] = now + lasts
            lasts = _YEAR
        return {
            "aud": spec["audiences"],
            "exp": now + lasts,
            "iat": now,
            "jti": registry.env.ids.uid(),
            "kubernetes.io": private,
            "nbf": now,
            "sub": f"system:serviceaccount:{meta['namespace']}:{meta['name']}",
        }


def _reference(obj: Obj) -> Obj:
    return {"name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}


CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"
_KEY_SET = "application/jwk-set+json"


class IssuerDocuments:
    def __init__(self, api: ApiResources, tokens: ServiceAccountTokens, jwks_uri: str = "", host: str = "") -> None:
        """`jwks_uri` is the URL of the keys; empty means this server, at `host` if it is given."""
        self._jwks_uri = jwks_uri
        self._host = f"[{host}]" if ":" in host else host
        self._api = api
        self._tokens = tokens

    async def configuration(self, ctx: RequestContext) -> Answer:
        document = {
            "issuer": self._tokens.issuer,
            "jwks_uri": self._jwks_uri or f"https://{self._address()}{KEYS}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": self._tokens.keys.algorithms,
        }
        return _respond(ctx, document, JSON)

    def _address(self) -> str:
        address = self._api.address
        return f"{self._host}:{address.rpartition(':')[2]}" if self._host else address

    async def keys(self, ctx: RequestContext) -> Answer:
        return _respond(ctx, {"keys": self._tokens.keys.published}, _KEY_SET)


def _respond(ctx: RequestContext, document: object, media_type: str) -> Response:
    if ctx.request.method != "GET":
        raise MethodNotAllowed("the server does not allow this method on the requested resource", details={})
    accept = ctx.request.headers.get("accept", "")
    accepted = [part.split(";")[0].strip() for part in accept.split(",")]
    if accept and "*/*" not in accepted and media_type not in accepted:
        raise NotAcceptable(f"406: Not Acceptable\n\nAvailable representations: {media_type}", details={})
    return Response(
        200, orjson.dumps(document), [("Content-Type", media_type), ("Cache-Control", "public, max-age=3600")]
    )
