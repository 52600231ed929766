"""`create secret`: generic, docker-registry, tls."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.files import CommandFiles, reason
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create.making import FLAGS, Making, begin, metadata
from setpoint.cli.verbs.create.sources import (
    APPEND_HASH,
    FROM_ENV_FILE,
    FROM_FILE,
    FROM_LITERAL,
    Add,
    add_env_files,
    add_files,
    add_literals,
    check_sources,
    content_hash,
)
from setpoint.meta import names
from setpoint.meta.goformat import quote
from setpoint.meta.gojson import compact


async def run_generic(invocation: Invocation) -> None:
    making = begin(invocation)
    check_sources(invocation)
    data: dict[str, str] = {}
    add_literals(invocation, _adding(data))
    add_files(invocation, _adding(data))
    add_env_files(invocation, _adding(data), "secret")
    await _finish(making, data, invocation.flags.type)


async def run_docker_registry(invocation: Invocation) -> None:
    making = begin(invocation)
    flags = invocation.flags
    data: dict[str, str] = {}
    if flags.from_file:
        add_files(invocation, _adding(data))
    elif flags.docker_username and flags.docker_password and flags.docker_server:
        _adding(data)(".dockerconfigjson", _docker_config(invocation).encode())
    else:
        raise Failed(
            "either --from-file or the combination of --docker-username, --docker-password and --docker-server is "
            "required"
        )
    await _finish(making, data, "kubernetes.io/dockerconfigjson")


async def run_tls(invocation: Invocation) -> None:
    making = begin(invocation)
    if not (invocation.flags.key and invocation.flags.cert):
        raise Failed("key and cert must be specified")
    files = invocation.io.files
    certificate, key = _read(files, invocation.flags.cert), _read(files, invocation.flags.key)
    _check_key_pair(certificate, key)
    data = {"tls.crt": b64encode(certificate).decode(), "tls.key": b64encode(key).decode()}
    await _finish(making, data, "kubernetes.io/tls")


def _check_key_pair(certificate: bytes, key: bytes) -> None:
    """Raise Failed with the message of Go's library if they do not match."""
    # Imported here because nothing else in this command needs the library, and loading it is slow.
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    if b"-----BEGIN" not in certificate:
        raise Failed("tls: failed to find any PEM data in certificate input")
    if b"-----BEGIN" not in key:
        raise Failed("tls: failed to find any PEM data in key input")
    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        raise Failed(
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may "
            "have been switched"
            if b"PRIVATE KEY-----" in certificate
            else "tls: failed to find certificate PEM data in certificate input"
        )
    if b"PRIVATE KEY-----" not in key:
        raise Failed(
            "tls: found a certificate rather than a key in the PEM for the private key"
            if b"-----BEGIN CERTIFICATE-----" in key
            else 'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input'
        )
    try:
        public = x509.load_pem_x509_certificate(certificate).public_key()
    except ValueError as error:
        raise Failed(f"tls: failed to parse certificate: {error}") from None
    try:
        private = load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Failed("tls: failed to parse private key") from None
    of_certificate = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) != of_certificate:
        same = type(private.public_key()) is type(public)
        raise Failed(
            "tls: private key does not match public key"
            if same
            else "tls: private key type does not match public key type"
        )


def _adding(data: dict[str, str]) -> Add:
    def add(key: str, value: bytes) -> None:
        if problems := names.config_map_key(key):
            raise Failed(f"{quote(key)} is not valid key name for a Secret {';'.join(problems)}")
        if key in data:
            raise Failed(f"cannot add key {key}, another key by that name already exists")
        data[key] = b64encode(value).decode()

    return add


async def _finish(making: Making, data: dict[str, str], type_: str) -> None:
    name = making.name
    if making.invocation.flags.append_hash:
        name += f"-{content_hash({'kind': 'Secret', 'type': type_, 'name': name, 'data': data})}"
    made: dict[str, Any] = {"kind": "Secret", "apiVersion": "v1", "metadata": metadata(making.invocation, name)}
    if data:
        made["data"] = dict(sorted(data.items()))
    if type_:
        made["type"] = type_
    await making.finish(made, "failed to create secret ")


def _docker_config(invocation: Invocation) -> str:
    flags = invocation.flags
    entry = {"username": flags.docker_username, "password": flags.docker_password}
    if flags.docker_email:
        entry["email"] = flags.docker_email
    entry["auth"] = b64encode(f"{flags.docker_username}:{flags.docker_password}".encode()).decode()
    return compact({"auths": {flags.docker_server: entry}}, ordered=False)


def _read(files: CommandFiles, path: str) -> bytes:
    try:
        return files.read(path)
    except OSError as error:
        raise Failed(f"Cannot read file {path}, open {path}: {reason(error)}") from None


COMMAND = Command(
    "Create a secret using a specified subcommand",
    children={
        "docker-registry": Command(
            "Create a secret for use with a Docker registry",
            run_docker_registry,
            (
                *FLAGS,
                text("docker-username", help="Username for Docker registry authentication"),
                text("docker-password", help="Password for Docker registry authentication"),
                text("docker-email", help="Email for Docker registry"),
                text("docker-server", default="https://index.docker.io/v1/", help="Location of the Docker registry"),
                APPEND_HASH,
                FROM_FILE,
            ),
            usage="NAME --docker-username=user --docker-password=password --docker-email=email "
            "[--docker-server=string] [--from-file=[key=]source] [--dry-run=server|client|none]",
            examples="""
            setpoint create secret docker-registry registry --docker-server=registry.example.com \\
                --docker-username=me --docker-password=secret

            # From the file that a log-in has left
            setpoint create secret docker-registry registry --from-file=.dockerconfigjson=path/to/config.json
            """,
        ),
        "generic": Command(
            "Create a secret from a local file, directory, or literal value",
            run_generic,
            (
                *FLAGS,
                FROM_FILE,
                FROM_LITERAL,
                FROM_ENV_FILE,
                text("type", help="The type of secret to create"),
                APPEND_HASH,
            ),
            usage="NAME [--type=string] [--from-file=[key=]source] [--from-literal=key1=value1] "
            "[--dry-run=server|client|none]",
            examples="""
            setpoint create secret generic door --from-literal=password=sesame

            setpoint create secret generic key --from-file=ssh-privatekey=path/to/id_rsa
            """,
        ),
        "tls": Command(
            "Create a TLS secret",
            run_tls,
            (
                *FLAGS,
                text("cert", help="Path to PEM encoded public key certificate."),
                text("key", help="Path to private key associated with given certificate."),
                APPEND_HASH,
            ),
            usage="NAME --cert=path/to/cert/file --key=path/to/key/file [--dry-run=server|client|none]",
            examples="""
            setpoint create secret tls site --cert=site.crt --key=site.key
            """,
        ),
    },
)
