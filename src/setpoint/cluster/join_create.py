"""Creates join tokens on a machine of the control plane, whose data directory contains the keys to pass on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from setpoint.apiserver.tokens import SigningKey
from setpoint.client import Client
from setpoint.cluster.certificates import ensure_certificates
from setpoint.cluster.config import ApiServerConfig, ConfigError, flags_of
from setpoint.cluster.join_bundle import (
    ENCRYPTION_CONFIG,
    OPTIONAL_FILES,
    REQUIRED_FILES,
    SAME_FLAGS,
    SIGNING_KEY,
    Bundle,
    JoinToken,
    bundle_objects,
    shown_flag,
    token_secret,
)
from setpoint.cluster.kubeconfigs import cluster_name
from setpoint.cluster.private_files import FRONT_PROXY
from setpoint.meta.clock import Clock

_FLAGZ = "/flagz"


class CreatedToken(NamedTuple):
    token: JoinToken
    flags: list[str]
    """Further flags that the command on the new machine needs."""


async def create_join_token(
    client: Client, directory: Path, ttl: float, clock: Clock, random: Callable[[int], bytes]
) -> CreatedToken:
    """Create a token for the running cluster of this data directory. Raises ConfigError, ApiError."""
    flags = await server_flags(client)
    _check(flags)
    pki = Path(flags["cert-dir"]) if flags.get("cert-dir") else directory / "pki"
    bundle = Bundle(
        _files(pki, flags, clock),
        {name: flags.get(name, "") for name in SAME_FLAGS},
        cluster_name(directory),
        _etcd_servers(directory, flags),
    )
    token = JoinToken.create(bundle.files["ca.crt"], random)
    owner = await client.create(token_secret(token, clock.now() + timedelta(seconds=ttl)))
    for obj in bundle_objects(token, bundle.seal(token, random), owner):
        await client.create(obj)
    defaults = flags_of(ApiServerConfig(directory))
    different = [name for name in SAME_FLAGS if flags.get(name) != defaults[name]]
    needed = [f"--{name}={shown_flag(flags[name])}" for name in different]
    if not bundle.etcd_servers:
        needed.append(f"--etcd-servers={shown_flag(flags['etcd-servers'])}")
        needed += [f"--{name}=FILE" for name in ("etcd-cafile", "etcd-certfile", "etcd-keyfile") if flags.get(name)]
    return CreatedToken(token, needed)


async def server_flags(client: Client) -> dict[str, str]:
    """Return the flags with which the server was started, by name."""
    reply = await client.sender.request("GET", _FLAGZ, accept="text/plain")
    pairs = (line.partition("=") for line in reply.body.decode().splitlines())
    return {name.strip(): value for name, equals, value in pairs if equals}


def _check(flags: Mapping[str, str]) -> None:
    if flags.get("store") != "etcd":
        raise ConfigError(
            f"this cluster is stored in {flags.get('store') or 'another store'}, which only one machine can use. "
            "Start one on etcd with `setpoint up --etcd embedded`; `setpoint store copy` moves the objects"
        )
    if flags.get("enable-bootstrap-token-auth") != "true":
        raise ConfigError("the API server does not accept join tokens: start it with --enable-bootstrap-token-auth")


def _files(pki: Path, flags: Mapping[str, str], clock: Clock) -> dict[str, bytes]:
    """Return the contents of the files that all machines share; what has not been used yet is created."""
    ensure_certificates(pki / FRONT_PROXY, clock.now())
    elsewhere = {
        SIGNING_KEY: flags.get("service-account-signing-key-file") or "",
        ENCRYPTION_CONFIG: flags.get("encryption-provider-config") or "",
    }
    SigningKey(pki / SIGNING_KEY).pem()
    found: dict[str, bytes] = {}
    for name in (*REQUIRED_FILES, *OPTIONAL_FILES):
        path = Path(elsewhere.get(name) or pki / name)
        try:
            found[name] = path.read_bytes()
        except FileNotFoundError:
            if name in REQUIRED_FILES or elsewhere.get(name):
                raise ConfigError(f"there is no file {path.absolute()}, which other machines need") from None
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    return found


def _etcd_servers(directory: Path, flags: Mapping[str, str]) -> list[str]:
    """Return the client URLs of the members; empty for an external etcd."""
    if flags.get("etcd") != "embedded":
        return []
    from setpoint.cluster.etcd_member import MemberRecord  # an optional dependency

    record = MemberRecord.read(directory)
    return [] if record is None else [record.client_url, *record.servers]
