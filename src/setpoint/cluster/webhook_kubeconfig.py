"""Kubeconfig files of webhooks: the cluster is the webhook's endpoint, and users are the credentials that the server
presents to webhooks.
"""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from setpoint.apiserver.config_files import FileProblem
from setpoint.apiserver.kubeconfig_webhooks import Endpoint, ReviewWebhook, read_token
from setpoint.apiserver.remote_servers import RemoteServer, RemoteServers
from setpoint.apiserver.webhook_client import Identity, NoIdentity, WebhookIdentities
from setpoint.client.authentication import basic
from setpoint.client.kubeconfig import Impersonation, Kubeconfig, KubeconfigError
from setpoint.cluster.config import ConfigError, open_error
from setpoint.meta.clock import Clock, Ids

_NO_CONFIGURATION = (
    "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable"
)


def webhook_endpoint(path: str, flag: str) -> Endpoint:
    """Return the endpoint of the kubeconfig at `path`, which `flag` has set. Raises ConfigError."""
    try:
        return _endpoint(Path(path))
    except (KubeconfigError, ValueError) as error:
        raise ConfigError(f"{flag}: {error}") from None


def review_webhook(servers: RemoteServers, clock: Clock, ids: Ids, path: str, pause: float) -> ReviewWebhook:
    """Return the webhook of an admission plugin. Raises FileProblem."""
    if not path:
        raise FileProblem(_NO_CONFIGURATION)
    try:
        Path(path).stat()
        return ReviewWebhook(servers, _endpoint(Path(path)), clock, ids, backoff=pause)
    except OSError as error:
        raise FileProblem(f"stat {path}: {(error.strerror or '').lower()}") from None
    except (KubeconfigError, ValueError) as error:
        raise FileProblem(str(error)) from None


def _endpoint(path: Path) -> Endpoint:
    """Raises KubeconfigError, ValueError."""
    access = Kubeconfig.load([path], must_exist=True).access(needs_user=False)
    url = urlsplit(access.server)
    port = url.port or (443 if url.scheme == "https" else 80)
    if url.scheme not in ("https", "http") or not url.hostname:
        raise KubeconfigError(f"the address of the webhook, {access.server!r}, must look like https://host/path")
    if access.exec is not None:
        raise KubeconfigError("credential plugins (exec) are not supported for webhooks")
    token = access.token
    if access.token_file is not None:
        try:
            token = read_token(access.token_file)
        except OSError as error:
            raise KubeconfigError(f"cannot read the token file {access.token_file}: {error.strerror}") from None
    authorization = f"Bearer {token}" if token else ""
    if not token and access.username:
        authorization = basic(access.username, access.password)
    server = RemoteServer(
        url.hostname,
        port,
        access.tls_server_name,
        access.ca or b"",
        access.insecure,
        display_address=url.netloc.rpartition("@")[2],
        client_certificate=(access.certificate, access.key or b"") if access.certificate else None,
        plaintext=url.scheme == "http",
        keep_alive=True,
    )
    path_ = url.path or "/"
    return Endpoint(
        server, f"{url.scheme}://{server.display_address}{path_}", path_, url.query, authorization, access.token_file
    )


def webhook_identities(clock: Clock, path: str) -> WebhookIdentities:
    """Return the credentials of the kubeconfig's users, whose names are hosts. Errors in a user are reported when the
    user is needed, with upstream's messages. Raises FileProblem."""
    try:
        Path(path).stat()
        found = Kubeconfig.load([Path(path)], must_exist=True)
    except OSError as error:
        raise FileProblem(f"stat {path}: {(error.strerror or '').lower()}") from None
    except KubeconfigError as error:
        raise FileProblem(str(error)) from None
    current: Any = found.contexts.get(found.current_context, {}).get("user") or ""
    users = found.users
    return WebhookIdentities(users, current if current in users else "", lambda name: _identity(users[name]), clock)


def _identity(user: dict[str, Any]) -> Identity:
    try:
        token = user.get("token") or ""
        if not token and user.get("tokenFile"):
            token = read_token(Path(user["tokenFile"]))
        certificate, key = (_data_or_file(user, f"client-{kind}") for kind in ("certificate", "key"))
    except OSError as error:
        raise NoIdentity(open_error(error)) from None
    except ValueError as error:
        raise NoIdentity(str(error)) from None
    name, password = user.get("username") or "", user.get("password") or ""
    if user.get("exec"):
        raise NoIdentity("credential plugins (exec) are not supported for webhooks")
    if user.get("auth-provider"):
        raise NoIdentity("auth provider not supported")
    if token and (name or password):
        raise NoIdentity("username/password or bearer token may be set, but not both")
    headers = []
    if token:
        headers.append(("authorization", f"Bearer {token}"))
    elif name or password:
        headers.append(("authorization", basic(name, password)))
    return Identity((*headers, *_impersonation_headers(user)), _key_pair(certificate, key))


def _data_or_file(user: dict[str, Any], key: str) -> bytes:
    """Return inline data if there is some, else the content of the file. Raises OSError or ValueError."""
    if user.get(f"{key}-data"):
        return b64decode(user[f"{key}-data"], validate=True)
    return Path(user[key]).read_bytes() if user.get(key) else b""


def _key_pair(certificate: bytes, key: bytes) -> tuple[bytes, bytes] | None:
    """Return the pair; None if either is missing. Raises NoIdentity."""
    if not (certificate and key):
        return None
    for what, data in (("certificate", certificate), ("key", key)):
        if b"-----BEGIN " not in data:
            raise NoIdentity(f"tls: failed to find any PEM data in {what} input")
    return certificate, key


def _impersonation_headers(user: dict[str, Any]) -> list[tuple[str, str]]:
    if not user.get("as"):
        return []
    extra = {key: tuple(values) for key, values in (user.get("as-user-extra") or {}).items()}
    return Impersonation(user["as"], user.get("as-uid") or "", tuple(user.get("as-groups") or ()), extra).headers()
