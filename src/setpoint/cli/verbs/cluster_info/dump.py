"""`cluster-info dump`: dump nodes, workloads, events and logs for debugging."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import duration, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.output import output_flags
from setpoint.cli.printing import make_printer
from setpoint.cli.resources import ALL_NAMESPACES
from setpoint.cli.writing import OUTPUT
from setpoint.cli.writing.typed import typed
from setpoint.client.paths import path_of, query_of
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError
from setpoint.meta.gojson import indented

Obj = dict[str, Any]
_KINDS = (
    ("events", "", "events"), ("replicationcontrollers", "", "replication-controllers"), ("services", "", "services"),
    ("daemonsets", "apps", "daemonsets"), ("deployments", "apps", "deployments"),
    ("replicasets", "apps", "replicasets"), ("pods", "", "pods"),
)  # fmt: skip


async def run(call: Invocation) -> None:
    flags = call.flags
    where = _Where(call)
    where.show("nodes", await _list(call, "nodes", ""))
    if flags.all_namespaces:
        found = await call.client.list(builtin("namespaces"))
        namespaces = [one["metadata"]["name"] for one in found.items]
    else:
        namespaces = flags.namespaces or ["kube-system", call.namespace]
    for namespace in namespaces:
        pods: list[Obj] = []
        for plural, group, name in _KINDS:
            found_list = await _list(call, plural, group, namespace)
            where.show(f"{namespace}/{name}", found_list)
            pods = found_list["items"] or []
        for pod in pods:
            spec = pod.get("spec") or {}
            for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
                where.write(f"{namespace}/{pod['metadata']['name']}/logs", ".txt", await _logs(call, pod, container))
    if where.folder is not None:
        call.print(f"Cluster info dumped to {flags.output_directory}")


class _Where:
    """Writes to standard output, or to files in a directory."""

    def __init__(self, call: Invocation) -> None:
        self._call = call
        flags = output_flags(call)
        self._json = flags.output == "json" and not flags.template
        self._printer = make_printer(flags)
        if flags.output == "name":
            raise Failed("list types are not supported by name printing: *v1.NodeList")
        self._extension = {"json": ".json", "yaml": ".yaml"}.get(flags.output, ".txt")
        given = call.flags.output_directory
        self.folder = Path(given) if given not in ("", "-") else None
        self._begun: set[Path] = set()

    def show(self, name: str, found: Obj) -> None:
        text = indented(typed(found), ordered=False) + "\n" if self._json else self._printer.print(found)
        self.write(name, self._extension, text.encode("utf-8", "surrogateescape"))

    def write(self, name: str, extension: str, data: bytes) -> None:
        if self.folder is None:
            self._call.write(data)
            return
        path = self.folder / f"{name}{extension}"
        if path not in self._begun:
            self._begun.add(path)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            path.write_bytes(data)
        else:
            with path.open("ab") as file:
                file.write(data)


async def _list(call: Invocation, plural: str, group: str, namespace: str = "") -> Obj:
    resource = builtin(plural, group)
    found = await call.client.list(resource, namespace)
    items = [{key: value for key, value in one.items() if key not in ("kind", "apiVersion")} for one in found.items]
    for one in items:
        one["metadata"] = {key: value for key, value in one["metadata"].items() if key != "managedFields"}
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": found.resource_version},
        # kubectl reads these lists in protobuf, which cannot tell an empty list from none.
        "items": items or None,
    }


async def _logs(call: Invocation, pod: Obj, container: Obj) -> bytes:
    meta, name = pod["metadata"], container["name"]
    about = f"logs for container {name} of pod {meta['namespace']}/{meta['name']} ====\n"
    path = path_of(builtin("pods"), meta["namespace"], meta["name"], "log")
    try:
        given = (await call.client.sender.request("GET", path, query_of({"container": name}))).body
    except ApiError as error:
        given = f"Request log error: {error.message}\n".encode()
    return f"==== START {about}".encode() + given + f"==== END {about}".encode()


COMMAND = Command(
    "Dump relevant information for debugging and diagnosis",
    run,
    (
        *(flag._replace(default="json") if flag.name == "output" else flag for flag in OUTPUT),
        *ALL_NAMESPACES,
        text("output-directory", help="Where to put files; unset or '-': everything goes to stdout."),
        texts("namespaces", help="A comma separated list of namespaces to dump."),
        duration("pod-running-timeout", default=20.0, help="For kubectl's sake: logs are read as they are."),
    ),
    examples="""
    # Into files
    setpoint cluster-info dump --output-directory=state --all-namespaces
    """,
)
