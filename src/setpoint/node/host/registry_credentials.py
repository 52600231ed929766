"""Credentials for image registries, from the Secrets that a Pod names in `imagePullSecrets`."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from setpoint.meta.objects import Obj, ObjView

_CONFIG_TYPES = {
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
    "kubernetes.io/dockercfg": ".dockercfg",
}
"""The key of the configuration by the type of the Secret."""
_DEFAULT_REGISTRY = "index.docker.io"


class Credential(NamedTuple):
    """A user name and a password. Its representation does not contain them."""

    username: str
    password: str

    def __repr__(self) -> str:
        return "Credential(...)"

    def auth_config(self) -> Obj:
        """Return the message AuthConfig of CRI."""
        return {"username": self.username, "password": self.password}


class InvalidPullSecret(ValueError):
    """A Secret cannot be parsed. The message is that of the pull, and contains nothing of the Secret."""


def credentials_for(repository: str, secrets: Iterable[ObjView]) -> list[Credential]:
    """Return the credentials for a repository such as `docker.io/library/nginx`, those of the longest matching path
    first. Raise InvalidPullSecret."""
    by_path: dict[str, list[Credential]] = {}
    for secret in secrets:
        for address, entry in _entries(secret).items():
            path = _registry_path(address)
            credential = _credential(entry)
            if path and credential not in by_path.get(path, ()):
                by_path.setdefault(path, []).append(credential)
    found = [one for path in sorted(by_path, reverse=True) if _matches(path, repository) for one in by_path[path]]
    if not found and _is_in_default_registry(repository):
        found = by_path.get(_DEFAULT_REGISTRY, [])
    return [*dict.fromkeys(found)]


def _entries(secret: ObjView) -> Mapping[str, Any]:
    """Return the entries of a Secret by registry; none if it has another type."""
    kind = secret.get("type", "")
    data = (secret.get("data") or {}).get(_CONFIG_TYPES.get(kind, ""))
    if not data:
        return {}
    try:
        config = json.loads(b64decode(data))
        entries = config.get("auths") if kind.endswith("json") else config
        if entries is None and isinstance(config, dict):
            return {}
        if isinstance(entries, dict) and all(isinstance(each, dict) for each in entries.values()):
            return entries
    except (ValueError, AttributeError, RecursionError):
        pass
    meta = secret.get("metadata") or {}
    raise InvalidPullSecret(f"the Secret {meta.get('namespace', '')}/{meta.get('name', '')} is not a valid {kind}")


def _credential(entry: Mapping[str, Any]) -> Credential:
    auth = entry.get("auth")
    if not auth:
        return Credential(str(entry.get("username") or ""), str(entry.get("password") or ""))
    try:
        # Some tools omit the padding, some write more than one line.
        text = b64decode("".join(str(auth).split()).rstrip("=") + "==").decode()
    except (binascii.Error, UnicodeDecodeError):
        raise InvalidPullSecret("illegal base64 data in the auth field of a pull secret") from None
    username, separator, password = text.partition(":")
    if not separator:
        raise InvalidPullSecret("unable to parse auth field, must be formatted as base64(username:password)")
    return Credential(username, password)


def _registry_path(address: str) -> str:
    """Return host, port and path of a key of the configuration; empty if it is not an address."""
    if not address.startswith(("https://", "http://")):
        address = f"https://{address}"
    try:
        parsed = urlsplit(address)
    except ValueError:
        return ""
    path = parsed.path
    if path.startswith(("/v1/", "/v2/")):
        path = path[3:]
    return parsed.netloc + (path if path != "/" else "")


def _matches(path: str, repository: str) -> bool:
    """Return whether credentials for `path` apply to a repository. Each part of the host may be a pattern."""
    host, _, below = path.partition("/")
    wanted, _, name = repository.partition("/")
    host_name, _, port = host.partition(":")
    wanted_name, _, wanted_port = wanted.partition(":")
    patterns, parts = host_name.split("."), wanted_name.split(".")
    if port != wanted_port or len(patterns) != len(parts) or not name.startswith(below):
        return False
    return all(fnmatchcase(part, pattern) for part, pattern in zip(parts, patterns, strict=True))


def _is_in_default_registry(repository: str) -> bool:
    host, separator, _ = repository.partition("/")
    return bool(host) and (
        not separator or host in ("docker.io", _DEFAULT_REGISTRY) or not any(each in host for each in ".:")
    )
