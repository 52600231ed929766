"""`setpoint token`: tokens with which further machines join the control plane."""

from __future__ import annotations

import os
import sys
from urllib.parse import urlsplit

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import duration, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import DATA_DIR, directory_of, find_running
from setpoint.cli.up import program_name
from setpoint.meta.times import human_duration

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


async def create(invocation: Invocation) -> None:
    # Imported here because `--help` does not need it.
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.etcd_member import MemberRecord
    from setpoint.cluster.join_create import create_join_token

    invocation.no_arguments()
    directory = directory_of(invocation)
    running = find_running(directory)
    if running is None:
        raise Failed(f"no cluster is running in {directory}; a token is created on a running machine of the cluster")
    if invocation.flags.ttl <= 0:
        raise Failed("--ttl must be greater than 0")
    invocation.point_to(directory)
    try:
        record = MemberRecord.read(directory)
        url = invocation.flags.url or running.url
        if record is not None and record.address not in _LOOPBACK and urlsplit(url).hostname in _LOOPBACK:
            raise Failed("the API server listens on loopback only: start it again without --bind-address")
        created = await create_join_token(
            invocation.client, directory, invocation.flags.ttl, invocation.io.clock, os.urandom
        )
    except ConfigError as error:
        raise Failed(str(error)) from None
    words = [program_name(invocation.io.environment, sys.argv), "up", "--join", url, "--token", str(created.token)]
    invocation.print(" ".join([*words, *created.flags]))
    invocation.print_err(
        f"Run this command on the new machine within {human_duration(invocation.flags.ttl)}. "
        "Keep it secret: it gives full access to the cluster."
    )


COMMAND = Command(
    "Create tokens with which further machines join the control plane",
    children={
        "create": Command(
            "Create a token, and print the command that joins one or more machines with it",
            create,
            (
                DATA_DIR,
                duration("ttl", default=7200.0, help="How long the token is valid."),
                text("url", help="URL at which the new machine reaches this one; by default that of its server."),
            ),
            examples="""
    # On a machine of a cluster that was started with --etcd embedded
    setpoint token create

    # For a machine that is prepared tomorrow
    setpoint token create --ttl 24h
    """,
        )
    },
    usage="create",
)
