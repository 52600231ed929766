"""Join tokens, and the bundle of the cluster's keys that a further control plane machine reads with one.

A join token has four parts, separated by dots: the id and the secret of a bootstrap token, with which the new machine
authenticates; the SHA-256 hash of the cluster's authority, by which it verifies the server before it sends anything;
and the secret that the key of the bundle is derived from. The bundle is in a Secret that the user of the bootstrap
token may read. A copy of the store is not enough to decrypt it: the last part of the token is only in the token.

`cryptography` is imported in the functions that need it, because no other start does.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from setpoint.cluster.config import ConfigError
from setpoint.cluster.private_files import ETCD, FRONT_PROXY, write_private
from setpoint.kinds.core.secret import NAMESPACE, PREFIX, TOKEN, TYPE
from setpoint.meta.jose import base64url_decode, base64url_encode
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time

ENCRYPTION_CONFIG: Final = "encryption-config.yaml"
SIGNING_KEY: Final = "sa.key"
_CA, _CA_KEY = "ca.crt", "ca.key"
REQUIRED_FILES: Final = (_CA, _CA_KEY, SIGNING_KEY, f"{FRONT_PROXY}/{_CA}", f"{FRONT_PROXY}/{_CA_KEY}")
OPTIONAL_FILES: Final = (f"{ETCD}/{_CA}", f"{ETCD}/{_CA_KEY}", ENCRYPTION_CONFIG)
SAME_FLAGS: Final = (
    "service-cluster-ip-range",
    "service-node-port-range",
    "service-account-issuer",
    "api-audiences",
    "etcd-prefix",
)
"""Flags that must have the same values on all machines."""
_ISSUED: Final = tuple(
    f"{certificate}.{kind}"
    for certificate in ("apiserver", f"{FRONT_PROXY}/apiserver", f"{ETCD}/member")
    for kind in ("crt", "key", "json")
)
"""Certificates that a machine issues with the authorities of the bundle."""
GROUP: Final = "system:bootstrappers:setpoint:control-plane"
_BUNDLE_PREFIX, _BUNDLE_KEY, _ROLE = "setpoint-join-", "bundle", "setpoint:join:"
_VERSION: Final = 1
_SECRET_LENGTH, _KEY_LENGTH, _NONCE_LENGTH = 16, 32, 12
_RBAC = "rbac.authorization.k8s.io"


class JoinToken(NamedTuple):
    id: str
    secret: str
    authority: bytes
    """The SHA-256 hash of the authority's certificate."""
    key: bytes
    """The secret that the key of the bundle is derived from."""

    @classmethod
    def create(cls, authority: bytes, random: Callable[[int], bytes]) -> JoinToken:
        """Return a new token for the cluster with this authority, a PEM certificate."""
        letters = "abcdefghijklmnopqrstuvwxyz0123456789"
        number, text = int.from_bytes(random(32)), ""
        for _ in range(22):
            number, digit = divmod(number, len(letters))
            text += letters[digit]
        return cls(text[:6], text[6:], fingerprint(_der(authority)), random(_SECRET_LENGTH))

    @classmethod
    def parse(cls, text: str) -> JoinToken:
        """Raises ConfigError if the text is not a join token."""
        parts = text.strip().split(".")
        if len(parts) == 4 and TOKEN.fullmatch(f"{parts[0]}.{parts[1]}"):
            try:
                authority, key = base64url_decode(parts[2]), base64url_decode(parts[3])
            except (ValueError, binascii.Error):
                authority = key = b""
            if len(authority) == hashlib.sha256().digest_size and len(key) == _SECRET_LENGTH:
                return cls(parts[0], parts[1], authority, key)
        raise ConfigError("--token is not a join token; `setpoint token create` on a running machine prints one")

    @property
    def bearer(self) -> str:
        """Return the bootstrap token."""
        return f"{self.id}.{self.secret}"

    def __str__(self) -> str:
        return ".".join((self.id, self.secret, base64url_encode(self.authority), base64url_encode(self.key)))


def fingerprint(certificate: bytes) -> bytes:
    """Return the hash by which a token names a certificate, which is DER."""
    return hashlib.sha256(certificate).digest()


def _der(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))


@dataclass(slots=True)
class Bundle:
    files: dict[str, bytes]
    """Contents by path, relative to the directory of certificates."""
    flags: dict[str, str] = field(default_factory=dict)
    """Values of SAME_FLAGS."""
    name: str = ""
    """The name of the cluster in kubeconfigs."""
    etcd_servers: list[str] = field(default_factory=list)
    """Client URLs of the members of etcd; empty if etcd is not run by the machines of the control plane."""

    def seal(self, token: JoinToken, random: Callable[[int], bytes]) -> bytes:
        """Return the encrypted bundle."""
        content = {
            "version": _VERSION,
            "files": {name: b64encode(data).decode() for name, data in self.files.items()},
            "flags": self.flags,
            "name": self.name,
            "etcdServers": self.etcd_servers,
        }
        nonce = random(_NONCE_LENGTH)
        sealed: bytes = _cipher(token).encrypt(nonce, json.dumps(content).encode(), token.id.encode())
        return nonce + sealed

    @classmethod
    def open(cls, data: bytes, token: JoinToken) -> Bundle:
        """Decrypt a bundle. Raises ConfigError."""
        from cryptography.exceptions import InvalidTag

        try:
            plain = _cipher(token).decrypt(data[:_NONCE_LENGTH], data[_NONCE_LENGTH:], token.id.encode())
        except (InvalidTag, ValueError):
            raise ConfigError(
                "the bundle of the cluster's keys cannot be decrypted with --token: its last part is wrong. Copy the "
                "whole token, or create another one with `setpoint token create`"
            ) from None
        content = json.loads(plain)
        if content.get("version") != _VERSION:
            raise ConfigError("the cluster runs another version of setpoint, whose bundle this one cannot read")
        files = {name: b64decode(data) for name, data in content["files"].items()}
        if not {*REQUIRED_FILES} <= files.keys() <= {*REQUIRED_FILES, *OPTIONAL_FILES}:
            raise ConfigError("the bundle of the cluster's keys has not the expected files")
        return cls(files, content["flags"], content["name"], content["etcdServers"])

    def write(self, directory: Path) -> None:
        """Write the files below the directory of certificates, each atomically; the authority last, so that its
        presence shows that all are there."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in sorted(self.files, key=lambda name: name == _CA):
            path, data = directory / name, self.files[name]
            path.parent.mkdir(exist_ok=True, mode=0o700)
            write_private(path, data)

    def check(self, flags: Mapping[str, str]) -> None:
        """Raise ConfigError unless the flags of this machine agree with those of the others."""
        for name, value in self.flags.items():
            if flags.get(name) != value:
                raise ConfigError(
                    f"the other machines run with --{name}={shown_flag(value)}; give this flag here too, "
                    f"instead of {shown_flag(flags.get(name, '')) or 'none'}"
                )


def remove_keys(directory: Path) -> None:
    """Remove the files of a bundle from the directory of certificates, and what was issued with them; the authority
    first, as `write` writes it last."""
    for name in (_CA, *REQUIRED_FILES, *OPTIONAL_FILES, *_ISSUED):
        (directory / name).unlink(missing_ok=True)
    for folder in (directory / ETCD, directory / FRONT_PROXY, directory):
        with suppress(OSError):  # it does not exist, or has other files
            folder.rmdir()


def shown_flag(value: str) -> str:
    """Return the value of a flag as it is typed: a list without its brackets."""
    return value.removeprefix("[").removesuffix("]")


def _cipher(token: JoinToken) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    derivation = HKDF(SHA256(), _KEY_LENGTH, salt=None, info=b"setpoint join bundle")
    return AESGCM(derivation.derive(token.key))


# -- objects ----------------------------------------------------------------------------------------------------------


def token_secret(token: JoinToken, expiration: datetime) -> Obj:
    """Return the Secret of the bootstrap token. Everything else belongs to it and is deleted with it."""
    data = {
        "token-id": token.id,
        "token-secret": token.secret,
        "expiration": format_time(expiration),
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": GROUP,
        "description": "joins a control plane machine",
    }
    meta = {"name": PREFIX + token.id, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": TYPE, "stringData": data}


def bundle_objects(token: JoinToken, sealed: bytes, owner: Obj) -> list[Obj]:
    """Return the Secret of the bundle, and the right of the token's user to read this Secret and nothing else. `owner`
    is the created Secret of the token."""
    reference = {"apiVersion": "v1", "kind": "Secret", "name": owner["metadata"]["name"]}
    reference["uid"] = owner["metadata"]["uid"]

    def meta(name: str) -> Obj:
        return {"name": name, "namespace": NAMESPACE, "ownerReferences": [reference]}

    secret, role = bundle_name(token), _ROLE + token.id
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"]}
    user = {"apiGroup": _RBAC, "kind": "User", "name": f"system:bootstrap:{token.id}"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": meta(secret),
            "data": {_BUNDLE_KEY: b64encode(sealed).decode()},
        },
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": meta(role), "rules": [rule]},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta(role),
            "subjects": [user],
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
        },
    ]


def bundle_name(token: JoinToken) -> str:
    return _BUNDLE_PREFIX + token.id


def sealed_bundle(secret: Obj) -> bytes:
    """Return the encrypted bundle in a Secret. Raises ConfigError."""
    try:
        return b64decode(secret["data"][_BUNDLE_KEY], validate=True)
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"the Secret {secret['metadata']['name']} contains no bundle") from None


def check_join_url(url: str) -> str:
    """Return the URL of a server to join. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0 and not parts.path.strip("/")
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"--join {url}: must be the URL of a machine of the cluster, such as https://10.0.0.1:6443")
    return url.rstrip("/")
