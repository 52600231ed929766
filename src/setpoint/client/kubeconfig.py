"""Kubeconfig files: find and merge them, and resolve one context to the access to one server.

`Access` says how to connect to a server and with which identity.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from setpoint.client.authentication import Credential

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_FILES = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
}
"""Settings that are paths, relative to the file that contains them."""
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


# The classes of this module are not dataclasses, because every command would spend some milliseconds on creating them.


class Impersonation:
    def __init__(
        self,
        user: str = "",
        uid: str = "",
        groups: tuple[str, ...] = (),
        extra: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.user = user
        self.uid = uid
        self.groups = groups
        self.extra = extra or {}

    def headers(self) -> list[tuple[str, str]]:
        found = [("impersonate-user", self.user)] if self.user else []
        if self.uid:
            found.append(("impersonate-uid", self.uid))
        found += [("impersonate-group", group) for group in self.groups]
        for key, values in self.extra.items():
            name = "impersonate-extra-" + quote(key.lower(), safe="!#$&'*+-.^_`|~")
            found += [(name, value) for value in values]
        return found


class ExecPlugin:
    """A credential plugin: a program that returns credentials."""

    def __init__(
        self,
        api_version: str,
        command: str,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        install_hint: str = "",
        interactive_mode: str = "IfAvailable",
        cluster: Mapping[str, object] | None = None,
    ) -> None:
        self.api_version = api_version
        self.command = command
        self.args = args
        self.env = env or {}
        self.install_hint = install_hint
        self.interactive_mode = interactive_mode
        self.cluster = cluster
        """The cluster information that is passed to the program on request; None if it is not requested."""


class Access:
    def __init__(
        self,
        server: str,
        ca: bytes | None = None,
        insecure: bool = False,
        tls_server_name: str = "",
        certificate: bytes | None = None,
        key: bytes | None = None,
        token: str = "",
        token_file: Path | None = None,
        username: str = "",
        password: str = "",
        exec: ExecPlugin | None = None,
        source: Callable[[], Awaitable[Credential]] | None = None,
        impersonate: Impersonation | None = None,
        namespace: str = "default",
        in_cluster: bool = False,
    ) -> None:
        self.server = server
        self.ca = ca
        """The trusted certificate authorities, as PEM; None means those of the system."""
        self.insecure = insecure
        self.tls_server_name = tls_server_name
        self.certificate = certificate
        self.key = key
        self.token = token
        self.token_file = token_file
        """A file with a bearer token, which is read again at intervals and takes precedence over `token`; None if there
        is none."""
        self.username = username
        self.password = password
        self.exec = exec
        self.source = source
        """Returns credentials from within this process, and takes precedence over all others; None if there is none."""
        self.impersonate = impersonate
        self.namespace = namespace
        self.in_cluster = in_cluster
        """Whether the identity is the service account of the Pod that this process runs in."""


class KubeconfigError(Exception):
    """A problem with a kubeconfig; the message is one sentence for users."""


class Kubeconfig:
    """One or several merged files: for every setting and named entry, the first file that has it decides."""

    def __init__(self) -> None:
        self.clusters: dict[str, dict[str, Any]] = {}
        self.users: dict[str, dict[str, Any]] = {}
        self.contexts: dict[str, dict[str, Any]] = {}
        self.current_context = ""

    @classmethod
    def load(cls, paths: Sequence[Path], *, must_exist: bool = False) -> Kubeconfig:
        """Load files; missing ones are skipped unless `must_exist`."""
        merged = cls()
        for path in paths:
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                if must_exist:
                    raise KubeconfigError(f"the kubeconfig {path} does not exist") from None
                continue
            except OSError as error:
                raise KubeconfigError(f"cannot read the kubeconfig {path}: {error.strerror}") from None
            merged._add(read_kubeconfig(data, path), path)
        return merged

    def _add(self, content: dict[str, Any], path: Path) -> None:
        for section, inner in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            known: dict[str, dict[str, Any]] = getattr(self, section)
            for entry in _entries(content, section, path):
                body = entry.get(inner) or {}
                if not isinstance(body, dict) or not isinstance(entry.get("name"), str):
                    raise KubeconfigError(f"the kubeconfig {path} has an entry in {section} without name or {inner}")
                known.setdefault(entry["name"], _anchored(body, section, path.parent))
        current = content.get("current-context")
        if not self.current_context and isinstance(current, str):
            self.current_context = current

    def access(
        self, *, context: str = "", cluster: str = "", user: str = "", server: str = "", needs_user: bool = True
    ) -> Access:
        """Return the access of the named (or current) context; `cluster` and `user` override it.

        With a `server` no cluster needs to exist; unless it `needs_user`, a missing user means no credentials.
        """
        name = context or self.current_context
        chosen: dict[str, Any] = {}
        if name:
            if name not in self.contexts:
                raise KubeconfigError(f"the kubeconfig has no context {name!r}")
            chosen = self.contexts[name]
        elif not (cluster or server):
            raise KubeconfigError("the kubeconfig has no current context: choose one of its contexts")
        cluster = cluster or chosen.get("cluster") or ""
        user = user or chosen.get("user") or ""
        if cluster not in self.clusters and (cluster or not server):
            raise KubeconfigError(
                f"the kubeconfig has no cluster {cluster!r}{_named_by(name, chosen, 'cluster', cluster)}"
            )
        if user and needs_user and user not in self.users:
            raise KubeconfigError(f"the kubeconfig has no user {user!r}{_named_by(name, chosen, 'user', user)}")
        reached = self.clusters.get(cluster) or {"server": server}
        access = _server(reached, cluster)
        _identify(access, self.users.get(user, {}), user, reached)
        access.namespace = chosen.get("namespace") or "default"
        return access


def _named_by(context: str, chosen: Mapping[str, Any], key: str, name: str) -> str:
    return f", which the context {context!r} names" if (chosen.get(key) or "") == name and context else ""


def in_cluster(environment: Mapping[str, str] = os.environ, directory: Path = SERVICE_ACCOUNT) -> Access:
    """Return the access of the service account of the Pod that this process runs in."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise KubeconfigError("this does not run in a Pod: KUBERNETES_SERVICE_HOST and _PORT are not set")
    shown = f"[{host}]" if ":" in host else host
    token = directory / "token"
    try:
        first = token.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise KubeconfigError(f"cannot read the service account token {token}: {error.strerror}") from None
    access = Access(f"https://{shown}:{port}", token=first, token_file=token, in_cluster=True)
    if (directory / "ca.crt").exists():
        access.ca = (directory / "ca.crt").read_bytes()
    if (directory / "namespace").exists():
        access.namespace = (directory / "namespace").read_text(encoding="utf-8").strip() or "default"
    return access


def read_kubeconfig(data: bytes, path: Path) -> dict[str, Any]:
    """Parse the content of a file. Raise KubeconfigError."""
    try:
        content = json.loads(data)
    except ValueError:
        # Imported here because kubeconfigs in JSON, such as ours, need no YAML, which is slow to load.
        from setpoint.meta.body import BodyError
        from setpoint.meta.yaml_read import read

        try:
            content, _ = read(data)
        except BodyError as error:
            raise KubeconfigError(f"the kubeconfig {path} is not YAML: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise KubeconfigError(f"the kubeconfig {path} is not a mapping of settings")
    return content


def _entries(content: dict[str, Any], section: str, path: Path) -> list[dict[str, Any]]:
    entries = content.get(section) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise KubeconfigError(f"in the kubeconfig {path}, {section} is not a list of named entries")
    return entries


def _anchored(body: dict[str, Any], section: str, directory: Path) -> dict[str, Any]:
    body = dict(body)
    for key in _FILES.get(section, ()):
        if body.get(key):
            body[key] = str(directory / body[key])
    command = (body.get("exec") or {}).get("command") or ""
    if os.sep in command:
        body["exec"] = {**body["exec"], "command": str(directory / command)}
    return body


def _content(body: Mapping[str, Any], key: str, owner: str) -> bytes | None:
    """Return inline data, or else the content of the file."""
    data = body.get(f"{key}-data")
    if data:
        try:
            return b64decode(data, validate=True)
        except (ValueError, TypeError):
            raise KubeconfigError(f"{key}-data of {owner} is not base64") from None
    path = body.get(key)
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise KubeconfigError(f"cannot read {key} {path} of {owner}: {error.strerror}") from None


def _server(body: Mapping[str, Any], name: str) -> Access:
    owner = f"the cluster {name!r}"
    if not body.get("server"):
        raise KubeconfigError(f"{owner} has no server")
    if body.get("proxy-url"):
        raise KubeconfigError(f"{owner} is behind a proxy (proxy-url), which is not supported")
    insecure = bool(body.get("insecure-skip-tls-verify"))
    ca = _content(body, "certificate-authority", owner)
    if insecure and ca:
        raise KubeconfigError(
            f"{owner} has both a certificate-authority and insecure-skip-tls-verify: only one is allowed"
        )
    return Access(str(body["server"]), ca, insecure, str(body.get("tls-server-name") or ""))


def _identify(access: Access, body: Mapping[str, Any], name: str, cluster: Mapping[str, Any]) -> None:
    owner = f"the user {name!r}"
    access.certificate = _content(body, "client-certificate", owner)
    access.key = _content(body, "client-key", owner)
    if bool(access.certificate) != bool(access.key):
        raise KubeconfigError(f"{owner} has only one of client-certificate and client-key")
    access.token = str(body.get("token") or "")
    if body.get("tokenFile"):
        access.token_file = Path(body["tokenFile"])
    access.username, access.password = str(body.get("username") or ""), str(body.get("password") or "")
    if access.username and (access.token or access.token_file):
        raise KubeconfigError(f"{owner} has both a token and a password: only one is allowed")
    if body.get("auth-provider"):
        raise KubeconfigError(f"{owner} has an auth-provider, which no client supports any more: use exec instead")
    if body.get("exec"):
        access.exec = _exec(body["exec"], owner, cluster)
    if body.get("as") or body.get("as-groups") or body.get("as-uid") or body.get("as-user-extra"):
        if not body.get("as"):
            raise KubeconfigError(f"{owner} impersonates groups without impersonating a user (as)")
        access.impersonate = Impersonation(
            str(body["as"]),
            str(body.get("as-uid") or ""),
            tuple(body.get("as-groups") or ()),
            {key: tuple(values) for key, values in (body.get("as-user-extra") or {}).items()},
        )


def _exec(body: Mapping[str, Any], owner: str, cluster: Mapping[str, Any]) -> ExecPlugin:
    version = body.get("apiVersion") or ""
    if version not in EXEC_VERSIONS:
        raise KubeconfigError(
            f"the exec plugin of {owner} has the apiVersion {version!r}, not one of {', '.join(EXEC_VERSIONS)}"
        )
    if not body.get("command"):
        raise KubeconfigError(f"the exec plugin of {owner} has no command")
    mode = body.get("interactiveMode") or ("IfAvailable" if version.endswith("v1beta1") else "")
    if mode not in ("Never", "IfAvailable", "Always"):
        raise KubeconfigError(f"the exec plugin of {owner} must set interactiveMode: Never, IfAvailable or Always")
    cluster_info: dict[str, object] | None = None
    if body.get("provideClusterInfo"):
        keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
        cluster_info = {key: cluster[key] for key in keys if cluster.get(key)}
        config = [e.get("extension") for e in cluster.get("extensions") or () if e.get("name") == _EXEC_EXTENSION]
        cluster_info["config"] = config[0] if config else None
    environment = {str(entry["name"]): str(entry.get("value") or "") for entry in body.get("env") or ()}
    args = [str(arg) for arg in body.get("args") or ()]
    hint = str(body.get("installHint") or "")
    return ExecPlugin(version, str(body["command"]), args, environment, hint, mode, cluster_info)
