"""`setpoint token`: tokens with which nodes join the cluster, and further machines the control plane."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import duration, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import DATA_DIR, directory_of, find_running, has_member
from setpoint.cli.up import program_name
from setpoint.meta.times import human_duration

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


async def create(invocation: Invocation) -> None:
    # Imported here because `--help` does not need it.
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.join_create import server_flags

    invocation.no_arguments()
    flags, directory = invocation.flags, directory_of(invocation)
    running = find_running(directory)
    if running is None:
        raise Failed(f"no cluster is running in {directory}; a token is created on a running machine of the cluster")
    if flags.ttl <= 0:
        raise Failed("--ttl must be greater than 0")
    if flags.node and flags.control_plane:
        raise Failed(
            "set either --node or --control-plane; without both, the commands for all that can join are printed"
        )
    invocation.point_to(directory)
    url = flags.url or running.url
    try:
        options = await server_flags(invocation.client)
        if options.get("enable-bootstrap-token-auth") != "true":
            raise Failed("the API server does not accept join tokens: start it with --enable-bootstrap-token-auth")
        of_node = not flags.control_plane
        of_control_plane = flags.control_plane or (options.get("store") == "etcd" and not flags.node)
        lines = []
        if of_node:
            pki = Path(options["cert-dir"]) if options.get("cert-dir") else directory / "pki"
            lines += [("Add a node, which runs containers:", await _node_command(invocation, pki, url))]
        if of_control_plane:
            command = await _control_plane_command(invocation, directory, url)
            lines += [("Add a machine to the control plane:", command)]
    except ConfigError as error:
        raise Failed(str(error)) from None
    for comment, line in lines:
        if len(lines) > 1:
            invocation.print(f"# {comment}")
        invocation.print(line)
    _explain(invocation, url, of_node=of_node, of_control_plane=of_control_plane)


async def _node_command(invocation: Invocation, pki: Path, url: str) -> str:
    from ssl import PEM_cert_to_DER_cert

    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.node_tokens import create_node_token, public_key_pin

    try:
        authority = (pki / "ca.crt").read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read {pki / 'ca.crt'}: {error.strerror}; does the server use --insecure-http?"
        ) from None
    clock = invocation.io.clock
    token = await create_node_token(invocation.client, url, authority, invocation.flags.ttl, clock, os.urandom)
    pin = public_key_pin(PEM_cert_to_DER_cert(authority.decode("ascii")))
    return f"sudo setpoint node join {url} --token {token} --ca {pin}"


async def _control_plane_command(invocation: Invocation, directory: Path, url: str) -> str:
    from setpoint.cluster.join_create import create_join_token

    if has_member(directory):
        from setpoint.cluster.etcd_packages import check_etcd_packages

        check_etcd_packages("this cluster, whose machine has a member of etcd,")
        from setpoint.cluster.etcd_member import MemberRecord  # an optional dependency

        record = MemberRecord.read(directory)
        if record is not None and record.address not in _LOOPBACK and urlsplit(url).hostname in _LOOPBACK:
            raise Failed("the API server listens on loopback only: start it again without --bind-address")
    created = await create_join_token(
        invocation.client, directory, invocation.flags.ttl, invocation.io.clock, os.urandom
    )
    words = [program_name(invocation.io.environment, sys.argv), "up", "--join", url, "--token", str(created.token)]
    return " ".join([*words, *created.flags])


def _explain(invocation: Invocation, url: str, *, of_node: bool, of_control_plane: bool) -> None:
    within = human_duration(invocation.flags.ttl)
    if of_node and urlsplit(url).hostname in _LOOPBACK:
        invocation.print_err(
            "Warning: the API server listens on loopback, so other machines cannot join. Start it with "
            "--bind-address 0.0.0.0, or give the URL at which they reach it with --url."
        )
    what = "these commands" if of_node and of_control_plane else "this command"
    text = f"Run {what} on the new machine within {within}. "
    if of_control_plane:
        text += "Keep the token of the control plane secret: it gives full access to the cluster."
        if not of_node:
            text = text.replace("the token of the control plane", "it")
    else:
        text += "Keep it secret: it permits to add nodes to the cluster."
    invocation.print_err(text)


COMMAND = Command(
    "Create tokens with which nodes and control plane machines join the cluster",
    children={
        "create": Command(
            "Create a token, and print the command that joins one or more machines with it",
            create,
            (
                DATA_DIR,
                duration("ttl", default=7200.0, help="How long the token is valid."),
                text("url", help="URL at which the new machine reaches this one; by default that of its server."),
                switch("node", help="Print the command for nodes only."),
                switch("control-plane", help="Print the command for machines of the control plane only."),
            ),
            about="""
    The command for nodes is always printed. The command for further machines of the control plane is printed too if
    the cluster is stored in etcd, as after `setpoint up --etcd embedded`.
    """,
            examples="""
    # The command that adds a node
    setpoint token create

    # On a machine of a cluster that was started with --etcd embedded: for another machine of the control plane
    setpoint token create --control-plane

    # For a machine that is prepared tomorrow
    setpoint token create --ttl 24h
    """,
        )
    },
    usage="create",
)
