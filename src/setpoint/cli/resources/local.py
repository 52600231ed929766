"""Objects of files without a server, for `--local`."""

from __future__ import annotations

from collections.abc import Iterator

from setpoint.cli.invocation import Invocation
from setpoint.cli.resources.manifests import read_files
from setpoint.cli.resources.target import Target
from setpoint.client import Resource
from setpoint.client.resources import BY_KIND


def local_targets(call: Invocation) -> Iterator[Target]:
    """Yield the objects of files unchanged. The plurals of kinds that are not built in are guessed."""
    for obj, source in read_files(call):
        version, kind = str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")
        group, _, bare = version.rpartition("/")
        resource = BY_KIND.get((version, kind)) or Resource(group, bare, kind, f"{kind.lower()}s")
        meta = obj.get("metadata") or {}
        yield Target(resource, str(meta.get("namespace") or ""), str(meta.get("name") or ""), obj, source)
