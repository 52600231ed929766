"""`/token` of a ServiceAccount: a token for it, bound to an object if so asked."""

from __future__ import annotations

from datetime import timedelta

from setpoint.apiserver.call import Call
from setpoint.apiserver.handlers.reviews.question import answer, ordered, read
from setpoint.apiserver.http.message import Answer
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.token_claims import Claims
from setpoint.apiserver.tokens import Lookup, ServiceAccountTokens
from setpoint.apiserver.watch_cache import Obj
from setpoint.kinds.authentication.tokenrequest import default_token_request, validate_token_request
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import BadRequest, Conflict, Invalid, NotFound
from setpoint.meta.field import Errors, invalid
from setpoint.meta.times import format_time

GROUP, KIND = "authentication.k8s.io", "TokenRequest"
RESOURCE = Resource(GROUP, "v1", KIND, "tokenrequests")
_PROJECTED = 3607
"""What kubelets ask for: such a token may be used for a year, though it says that it should not after this long."""
_YEAR = 365 * 24 * 3600
_WEBHOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")


class TokenRequests:
    def __init__(self, tokens: ServiceAccountTokens, lookup: Lookup, *, longest: int = 0, extends: bool = True) -> None:
        """`longest`: seconds for which a token may be good at most; 0: whatever is asked for. `extends`: what kubelets
        ask for may be used for longer."""
        self._tokens = tokens
        self._lookup = lookup
        self._longest = longest
        self._extends = extends

    async def create(self, call: Call, registry: Registry, form: Form) -> Answer:
        request = await call.work(self._read, call)
        attrs = registry.attributes(call, "CREATE", request, None, call.target.name)
        await registry.env.admission.mutate(attrs)
        account = self._account(call, registry, request)
        meta, spec = request["metadata"], request["spec"]
        meta |= {key: account["metadata"][key] for key in ("name", "namespace", "uid")}
        meta["creationTimestamp"] = format_time(call.now)
        spec["audiences"] = spec.get("audiences") or list(self._tokens.audiences)
        errs: Errors = []
        validate_token_request(request, errs)
        if errs:
            raise Invalid.of(GROUP, KIND, "", errs)
        await registry.env.admission.validate(attrs)
        bound = self._bound(call, spec.get("boundObjectRef"))
        if 0 < self._longest < spec["expirationSeconds"]:
            asked = spec["expirationSeconds"]
            call.warn(f"requested expiration of {asked} seconds shortened to {self._longest} seconds")
            spec["expirationSeconds"] = self._longest
        claims = self._claims(call, registry, account, spec, bound)
        token = self._tokens.sign(claims)
        if call.audit is not None:
            call.audit.annotations["authentication.kubernetes.io/issued-credential-id"] = f"JTI={claims['jti']}"
        ends = call.now + timedelta(seconds=spec["expirationSeconds"])
        request["status"] = {"token": token, "expirationTimestamp": format_time(ends)}
        return answer(RESOURCE, form, {"metadata": ordered(meta), "spec": spec, "status": request["status"]})

    def _read(self, call: Call) -> Obj:
        request = read(call, RESOURCE, default_token_request, keep_system_fields=True)
        name = request["metadata"].get("name")
        if name and name != call.target.name:
            text = "must match the service account name if specified"
            raise Invalid.of(GROUP, KIND, call.target.name, [invalid("metadata.name", name, text)])
        return request

    def _account(self, call: Call, registry: Registry, request: Obj) -> Obj:
        account = registry.get(call.target.namespace, call.target.name).obj
        given, uid = request["metadata"].get("uid"), account["metadata"]["uid"]
        if given and given != uid:
            why = f"the UID in the token request ({given}) does not match the UID of the service account ({uid})"
            raise Conflict.of(GROUP, KIND, call.target.name, why)
        return account

    def _bound(self, call: Call, reference: Obj | None) -> dict[str, Obj]:
        """What the token is bound to, by the name of its claim: at most one object and, for a Pod, its node."""
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
        entry = self._lookup(f"{kind.lower()}s", "" if kind == "Node" else call.target.namespace, name)
        if entry is None:
            raise NotFound.of("", f"{kind.lower()}s", name)
        found = {kind.lower(): _reference(entry.obj)}
        if kind == "Pod":
            spec = entry.obj["spec"]
            if spec.get("serviceAccountName") != call.target.name:
                raise BadRequest(
                    f'cannot bind token for serviceaccount "{call.target.name}" to pod running with different '
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

    def _claims(self, call: Call, registry: Registry, account: Obj, spec: Obj, bound: dict[str, Obj]) -> Claims:
        now, lasts = int(call.now.timestamp()), spec["expirationSeconds"]
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
