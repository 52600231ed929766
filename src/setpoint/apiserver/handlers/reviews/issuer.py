"""Where others learn to check service account tokens: the issuer's OpenID documents."""

from __future__ import annotations

import orjson

from setpoint.apiserver.call import Call
from setpoint.apiserver.http.message import Answer, Response
from setpoint.apiserver.negotiate import JSON
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.tokens import ServiceAccountTokens
from setpoint.meta.errors import MethodNotAllowed, NotAcceptable

CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"
_KEY_SET = "application/jwk-set+json"


class IssuerDocuments:
    def __init__(self, api: ApiServer, tokens: ServiceAccountTokens, keys_at: str = "", host: str = "") -> None:
        """`keys_at`: where others find the keys; empty: here, by the name `host` if there is one."""
        self._keys_at = keys_at
        self._host = f"[{host}]" if ":" in host else host
        self._api = api
        self._tokens = tokens

    async def configuration(self, call: Call) -> Answer:
        document = {
            "issuer": self._tokens.issuer,
            "jwks_uri": self._keys_at or f"https://{self._address()}{KEYS}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": self._tokens.keys.algorithms,
        }
        return _respond(call, document, JSON)

    def _address(self) -> str:
        address = self._api.address
        return f"{self._host}:{address.rpartition(':')[2]}" if self._host else address

    async def keys(self, call: Call) -> Answer:
        return _respond(call, {"keys": self._tokens.keys.published}, _KEY_SET)


def _respond(call: Call, document: object, media_type: str) -> Response:
    if call.request.method != "GET":
        raise MethodNotAllowed("the server does not allow this method on the requested resource", details={})
    accept = call.request.headers.get("accept", "")
    accepted = [part.split(";")[0].strip() for part in accept.split(",")]
    if accept and "*/*" not in accepted and media_type not in accepted:
        raise NotAcceptable(f"406: Not Acceptable\n\nAvailable representations: {media_type}", details={})
    return Response(
        200, orjson.dumps(document), [("Content-Type", media_type), ("Cache-Control", "public, max-age=3600")]
    )
