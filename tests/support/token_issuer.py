"""A minimal token issuer, and a network of servers without sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from setpoint.apiserver.remote_servers import RemoteServer, RemoteServerError
from setpoint.wire.message import HttpAnswer, Request, Response

Answer = Callable[[RemoteServer, Request], Response]
JSON = [("Content-Type", "application/json")]


class Network:
    """A RemoteServers with hosts by name; other hosts do not answer."""

    def __init__(self) -> None:
        self.hosts: dict[str, Answer] = {}
        self.asked: list[str] = []

    async def forward(self, server: RemoteServer, request: Request, timeout: float) -> HttpAnswer:
        return await self.call(server, request, timeout)

    async def call(self, server: RemoteServer, request: Request, timeout: float) -> Response:
        self.asked.append(f"{server.host}{request.path}")
        if server.host not in self.hosts:
            raise RemoteServerError(f"dial tcp {server.host}:{server.port}: connect: connection refused")
        return self.hosts[server.host](server, request)


class Key:
    def __init__(self, name: str, algorithm: str = "ES256") -> None:
        self.name = name
        self.algorithm = algorithm
        curves: dict[str, ec.EllipticCurve] = {
            "ES256": ec.SECP256R1(),
            "ES384": ec.SECP384R1(),
            "ES512": ec.SECP521R1(),
        }
        if algorithm in curves:
            self.private: Any = ec.generate_private_key(curves[algorithm])
            public = ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        else:
            self.private = rsa.generate_private_key(65537, 2048)
            public = RSAAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        self.published = {**public, "kid": name, "use": "sig", "alg": algorithm}

    def sign(self, claims: dict[str, Any], **headers: Any) -> str:
        return jwt.encode(claims, self.private, self.algorithm, {"kid": self.name, **headers})


class Issuer:
    """What is at https://HOST."""

    def __init__(self, network: Network, host: str, key: Key) -> None:
        self.url = f"https://{host}"
        self.keys = [key]
        self.headers: list[tuple[str, str]] = []
        """Of the answer with the keys."""
        self.documents: dict[str, Response] = {}
        """What is elsewhere there."""
        self.authority = b""
        network.hosts[host] = self.answer

    def answer(self, server: RemoteServer, request: Request) -> Response:
        self.authority = server.ca_bundle
        if request.path == "/.well-known/openid-configuration":
            found = {"issuer": self.url, "jwks_uri": f"{self.url}/keys", "authorization_endpoint": f"{self.url}/auth"}
            return Response(200, orjson.dumps(found), list(JSON))
        if request.path == "/keys":
            keys = {"keys": [key.published for key in self.keys]}
            return Response(200, orjson.dumps(keys), [*JSON, *self.headers])
        return self.documents.get(request.path) or Response(404, b"not here\n", [])
