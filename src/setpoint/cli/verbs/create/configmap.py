"""`create configmap`."""

from __future__ import annotations

from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create.making import FLAGS, begin, metadata
from setpoint.cli.verbs.create.sources import (
    APPEND_HASH,
    FROM_ENV_FILE,
    FROM_FILE,
    FROM_LITERAL,
    add_env_files,
    add_files,
    add_literals,
    check_sources,
    content_hash,
)
from setpoint.meta import names
from setpoint.meta.goformat import quote


async def run(invocation: Invocation) -> None:
    making = begin(invocation)
    check_sources(invocation)
    name = making.name
    data: dict[str, str] = {}
    binary: dict[str, str] = {}

    def add(key: str, value: bytes) -> None:
        if problems := names.config_map_key(key):
            raise Failed(f"{quote(key)} is not a valid key name for a ConfigMap: {','.join(problems)}")
        for where, there in (("Data", data), ("BinaryData", binary)):
            if key in there:
                raise Failed(
                    f"cannot add key {quote(key)}, another key by that name already exists in {where} for ConfigMap "
                    f"{quote(name)}"
                )
        try:
            data[key] = value.decode()
        except UnicodeDecodeError:
            from base64 import b64encode

            binary[key] = b64encode(value).decode()

    add_files(invocation, add)
    add_literals(invocation, add)
    add_env_files(invocation, add, "config")
    if invocation.flags.append_hash:
        content: dict[str, Any] = {"kind": "ConfigMap", "name": name, "data": data}
        name = f"{name}-{content_hash(content | ({'binaryData': binary} if binary else {}))}"
    made: dict[str, Any] = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata(invocation, name)}
    made |= {key: dict(sorted(value.items())) for key, value in (("data", data), ("binaryData", binary)) if value}
    await making.finish(made, "failed to create configmap: ")


COMMAND = Command(
    "Create a config map from a local file, directory or literal value",
    run,
    (*FLAGS, FROM_FILE, FROM_LITERAL, FROM_ENV_FILE, APPEND_HASH),
    usage="NAME [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none]",
    aliases=("cm",),
    examples="""
    # Every file of a directory, each under its name
    setpoint create configmap settings --from-file=path/to/settings

    # Values from the command line
    setpoint create configmap settings --from-literal=colour=blue --from-literal=size=10

    # Lines of key=value
    setpoint create configmap settings --from-env-file=settings.env
    """,
)
