"""How a machine becomes a node of a cluster: discovery with a pinned authority, and TLS bootstrap.

`join` may be interrupted at any point and repeated. All files are private to their owner and replaced atomically; the
kubeconfig is written last, so that its presence shows that the node has joined.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from setpoint.client.authentication import Credential
from setpoint.client.client import Client
from setpoint.client.https import connect
from setpoint.client.kubeconfig import Access, Kubeconfig, KubeconfigError
from setpoint.client.resources import builtin
from setpoint.client.transport import Unreachable
from setpoint.cluster.certificates import CertificateFiles, issue_client_certificate, issue_serving_certificate
from setpoint.cluster.config import ConfigError
from setpoint.cluster.load_balancer import SERVER_LIST
from setpoint.cluster.node_certificates import (
    CLIENT_SIGNER,
    RequestPending,
    RequestRefused,
    StoredCertificate,
    WantedCertificate,
    make_private_directory,
    read_pair,
    write_durably,
    write_pair,
)
from setpoint.cluster.node_tokens import CLUSTER_INFO, PUBLIC, NodeToken, check_pin, public_key_pin
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.conditions import conditions_of
from setpoint.meta.errors import ApiError
from setpoint.meta.x509.pem import blocks, peer_chain
from setpoint.node.host.directories import NodeDirectories
from setpoint.wire.tls import TlsClient

_TIMEOUT: Final = 15.0
_APPROVAL_TIMEOUT: Final = 120.0
_DEFAULT_PORT: Final = 443
_USER, _GROUP = "system:node:", "system:nodes"
_AGAIN: Final = "create a token with `setpoint token create` on the control plane, and run the command that it prints"


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """The files of a node's identity."""

    directories: NodeDirectories

    @property
    def ca(self) -> Path:
        """The authority of the cluster."""
        return self.directories.pki / "ca.crt"

    @property
    def client(self) -> Path:
        """The client certificate and its key."""
        return self.directories.pki / "kubelet-client-current.pem"

    @property
    def serving(self) -> Path:
        """The serving certificate and its key."""
        return self.directories.pki / "kubelet-server-current.pem"

    @property
    def self_signed(self) -> Path:
        """The directory of the serving certificate that is used until the cluster has signed one."""
        return self.directories.pki / "self-signed"

    @property
    def kubeconfig(self) -> Path:
        return self.directories.root / "kubeconfig"

    @property
    def settings(self) -> Path:
        """The options with which the node joined."""
        return self.directories.root / "node.json"

    @property
    def servers(self) -> Path:
        """The list of API servers that were known last."""
        return self.directories.root / SERVER_LIST


# -- discovery --------------------------------------------------------------------------------------------------------


def check_url(url: str) -> str:
    """Return the URL of an API server. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0 and not parts.path.strip("/")
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"{url}: must be the URL of an API server, such as https://10.0.0.1:6443")
    return url.rstrip("/")


async def discover(url: str, pin: str, clock: Clock) -> bytes:
    """Return the authority with this pin, as PEM. It is either a certificate that the server presents, or the one that
    the ConfigMap `cluster-info` holds. Nothing secret is sent. Raises ConfigError."""
    chain = await _presented(url)
    found = _pinned(chain, pin)
    if found is None:
        found = _pinned([block.data for block in blocks(await _published(url, clock))], pin)
    if found is None:
        raise ConfigError(
            f"the server at {url} does not belong to the cluster of --ca: neither does it present an authority with "
            "this pin, nor does the ConfigMap cluster-info hold one. Check the URL and the pin"
        )
    return ssl.DER_cert_to_PEM_cert(found).encode()


def _pinned(certificates: Iterable[bytes], pin: str) -> bytes | None:
    for certificate in certificates:
        try:
            if public_key_pin(certificate) == pin and _is_authority(certificate):
                return certificate
        except ValueError:
            continue
    return None


def _is_authority(certificate: bytes) -> bool:
    from cryptography import x509  # slow to import

    found = x509.load_der_x509_certificate(certificate)
    try:
        return found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


async def _presented(url: str) -> list[bytes]:
    """Return the certificates that the server sends in the handshake. Raises ConfigError."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(_TIMEOUT):
            tls, host = TlsClient(None), parts.hostname or ""
            transport, _ = await tls.connect(asyncio.Protocol, host, parts.port or _DEFAULT_PORT)
    except TimeoutError:
        raise ConfigError(f"the server at {url} did not answer within {_TIMEOUT:g} s") from None
    except OSError as error:  # includes ssl.SSLError
        raise ConfigError(f"the server at {url} cannot be reached: {error.strerror or error}") from None
    try:
        return list(peer_chain(transport.get_extra_info("ssl_object")))
    finally:
        transport.abort()


async def _published(url: str, clock: Clock) -> bytes:
    """Return the authorities in `cluster-info`, as PEM; empty if there are none."""
    client = connect(Access(url, insecure=True), clock, timeout=_TIMEOUT)
    try:
        data = (await client.get(builtin("configmaps"), CLUSTER_INFO, PUBLIC)).get("data") or {}
        cluster = json.loads(data["kubeconfig"])["clusters"][0]["cluster"]
        return b64decode(cluster["certificate-authority-data"])
    except (ApiError, Unreachable, ValueError, LookupError, TypeError):
        return b""
    finally:
        await client.close()


# -- joining ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The cluster to join, and under which name."""

    url: str
    token: str
    pin: str
    name: str
    """The name of the node."""


async def join(
    files: NodeFiles, wanted: JoinRequest, clock: Clock, ids: Ids, timeout: float = _APPROVAL_TIMEOUT
) -> bool:
    """Make this machine a node of the cluster. Returns False if it was one already, with a valid certificate; then the
    token is not used. Raises ConfigError."""
    url, token, pin = check_url(wanted.url), NodeToken.parse(wanted.token), check_pin(wanted.pin)
    try:
        if _has_joined(files, wanted.name, pin, clock, ids):
            write_kubeconfig(files, url, wanted.name)
            return False
        authority = await discover(url, pin, clock)
        make_private_directory(files.directories.root)
        make_private_directory(files.directories.pki)
        write_durably(files.ca, authority)
        stored = StoredCertificate(files.client, clock, ids)
        client = connect(Access(url, ca=authority, token=str(token)), clock, timeout=_TIMEOUT)
        try:
            await _check_name(client, wanted.name)
            await _bootstrap(client, stored, wanted, url, timeout)
        finally:
            await client.close()
        write_kubeconfig(files, url, wanted.name)
        return True
    except OSError as error:
        raise ConfigError(f"cannot write the files of the node: {error}") from None


def _has_joined(files: NodeFiles, name: str, pin: str, clock: Clock, ids: Ids) -> bool:
    """Return whether the node has a valid identity in this cluster. Raises ConfigError if it has one in another."""
    check_same_cluster(files, pin)
    if not files.ca.exists():
        return False
    stored = StoredCertificate(files.client, clock, ids)
    if stored.pair is None or not stored.is_valid:
        return False
    if stored.pair.subject != _USER + name:
        raise ConfigError(
            f"this machine has joined as {stored.pair.subject.removeprefix(_USER)}, not as {name}: "
            "`sudo setpoint node leave` removes it first"
        )
    return True


def check_same_cluster(files: NodeFiles, pin: str) -> None:
    """Raise ConfigError if this machine is a node of another cluster, whose Pods may still run."""
    try:
        known = files.ca.read_bytes()
    except FileNotFoundError:
        return
    if files.kubeconfig.exists() and pin not in _pins(known):
        raise ConfigError(
            f"this machine is a node of another cluster (its files are in {files.directories.root}): "
            "`sudo setpoint node leave` removes it first"
        )


def _pins(pem: bytes) -> Iterator[str]:
    for block in blocks(pem):
        yield public_key_pin(block.data)


async def _check_name(client: Client, name: str) -> None:
    """Raise ConfigError if a node of this name works. Two machines of one name would stop each other's Pods."""
    try:
        node = await client.get(builtin("nodes"), name)
    except (ApiError, Unreachable):
        return  # the request for a certificate reports a token that is not valid
    if any(each["type"] == "Ready" and each.get("status") == "True" for each in conditions_of(node)):
        raise ConfigError(
            f"the cluster has a node {name} that is ready: choose another name with --node-name, "
            "or delete the Node if this machine replaces it"
        )


async def _bootstrap(client: Client, stored: StoredCertificate, wanted: JoinRequest, url: str, timeout: float) -> None:
    try:
        await stored.obtain(client, WantedCertificate(wanted.name, CLIENT_SIGNER), timeout)
    except Unreachable as error:
        raise ConfigError(str(error)) from None
    except ApiError as error:
        if error.code == 401:
            why = f"the token has expired or was deleted: {_AGAIN}"
        elif error.code == 403:
            why = f"the token is not one for nodes: {_AGAIN} ({error.message})"
        else:
            why = error.message
        raise ConfigError(f"the server at {url} refuses the request for a certificate: {why}") from None
    except RequestPending as error:
        raise ConfigError(
            f"{error} within {timeout:g} s. `kubectl get csr` on the control plane shows it; "
            "repeat this command when it is approved"
        ) from None
    except (RequestRefused, ValueError) as error:
        raise ConfigError(f"{error}. Repeat this command to request another certificate") from None


def write_kubeconfig(files: NodeFiles, url: str, name: str) -> None:
    """Write the kubeconfig of the node. It names the files of the certificates, which are renewed. Raises OSError."""
    folder = files.directories.pki.name
    user = {"client-certificate": f"{folder}/{files.client.name}", "client-key": f"{folder}/{files.client.name}"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "setpoint", "cluster": {"server": url, "certificate-authority": f"{folder}/{files.ca.name}"}}
        ],
        "users": [{"name": _USER + name, "user": user}],
        "contexts": [{"name": "setpoint", "context": {"cluster": "setpoint", "user": _USER + name}}],
        "current-context": "setpoint",
        "preferences": {},
    }
    write_durably(files.kubeconfig, json.dumps(config, indent=2).encode() + b"\n")


def issue_identity(
    files: NodeFiles, authority: CertificateFiles, url: str, name: str, addresses: Iterable[str], clock: Clock
) -> None:
    """Write the identity of a node on the machine of the control plane, which has the key of the authority. Valid
    certificates for the same name and addresses are retained. Raises ConfigError."""
    try:
        ca, names = authority.ca.read_bytes(), sorted({name, *addresses})
        check_same_cluster(files, next(_pins(ca)))
        make_private_directory(files.directories.root)
        make_private_directory(files.directories.pki)
        write_durably(files.ca, ca)
        now = clock.now()
        for path, wanted in ((files.client, []), (files.serving, names)):
            pair = read_pair(path)
            if pair is not None and pair.subject == _USER + name and set(wanted) <= pair.names:
                if now < pair.begins + (pair.ends - pair.begins) * 0.7:
                    continue
            if wanted:
                certificate, key = issue_serving_certificate(authority, _USER + name, [_GROUP], wanted, now)
            else:
                certificate, key = issue_client_certificate(authority, _USER + name, [_GROUP], now)
            write_pair(path, certificate, key)
        write_kubeconfig(files, url, name)
    except OSError as error:
        raise ConfigError(f"cannot write the files of the node: {error}") from None


# -- the identity of a node that has joined ---------------------------------------------------------------------------


def node_access(files: NodeFiles, stored: StoredCertificate, clock: Clock) -> Access:
    """Return how the node connects to its cluster; new connections use the renewed certificate. Raises ConfigError."""
    if not files.kubeconfig.exists():
        raise ConfigError(f"this machine has not joined a cluster: {_AGAIN}")
    if stored.pair is None:
        raise ConfigError(f"{stored.path} holds no usable client certificate: {_AGAIN}")
    if not stored.is_valid:
        ends = f"{stored.pair.ends:%Y-%m-%d %H:%M:%S} UTC"
        name = stored.pair.subject.removeprefix(_USER)
        raise ConfigError(f"the client certificate of the node {name} expired at {ends}: {_AGAIN}")
    try:
        access = Kubeconfig.load([files.kubeconfig], must_exist=True).access()
    except KubeconfigError as error:
        raise ConfigError(str(error)) from None

    async def current() -> Credential:
        pair = stored.pair
        assert pair is not None
        # Looked at again when a renewal is due, and from then on with each request.
        return Credential(certificate=pair.certificate, key=pair.key, expires=max(stored.renewal, clock.now()))

    access.source = current
    return access


def node_name(stored: StoredCertificate) -> str:
    """Return the name of the node that the client certificate identifies; empty if there is no certificate."""
    return stored.pair.subject.removeprefix(_USER) if stored.pair is not None else ""
