"""Where a webhook is, as a kubeconfig says it: the cluster is the webhook, the user is what it is shown."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from setpoint.apiserver.config_files import FileProblem
from setpoint.apiserver.far_server import FarServer, FarServers
from setpoint.apiserver.review_webhook import ReviewWebhook
from setpoint.apiserver.webhook_endpoint import Endpoint, token_in
from setpoint.client.authentication import basic
from setpoint.client.kubeconfig import Kubeconfig, KubeconfigError
from setpoint.cluster.config import ConfigError
from setpoint.meta.clock import Clock, Ids

_UNSAID = (
    "invalid configuration: no configuration has been provided, try setting KUBERNETES_MASTER environment variable"
)


def webhook_endpoint(path: str, flag: str) -> Endpoint:
    """`flag`: where the path was given, for the message. Raises ConfigError."""
    try:
        return _endpoint(Path(path))
    except (KubeconfigError, ValueError) as error:
        raise ConfigError(f"{flag}: {error}") from None


def review_webhook(servers: FarServers, clock: Clock, ids: Ids, path: str, pause: float) -> ReviewWebhook:
    """The one of an admission plugin. Raises FileProblem."""
    if not path:
        raise FileProblem(_UNSAID)
    try:
        Path(path).stat()
        return ReviewWebhook(servers, _endpoint(Path(path)), clock, ids, pause=pause)
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
        raise KubeconfigError("a program that gives out credentials (exec) is not run for a webhook")
    token = access.token
    if access.token_file is not None:
        try:
            token = token_in(access.token_file)
        except OSError as error:
            raise KubeconfigError(f"cannot read the token file {access.token_file}: {error.strerror}") from None
    authorization = f"Bearer {token}" if token else ""
    if not token and access.username:
        authorization = basic(access.username, access.password)
    server = FarServer(
        url.hostname,
        port,
        access.tls_server_name,
        access.ca or b"",
        access.insecure,
        shown=url.netloc.rpartition("@")[2],
        certificate=(access.certificate, access.key or b"") if access.certificate else None,
        plain=url.scheme == "http",
        kept=True,
    )
    path_ = url.path or "/"
    return Endpoint(server, f"{url.scheme}://{server.shown}{path_}", path_, url.query, authorization, access.token_file)
