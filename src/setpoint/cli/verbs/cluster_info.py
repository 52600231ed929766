"""`cluster-info`: print the addresses of the control plane and its services, or dump its state for debugging."""

from __future__ import annotations

import posixpath

from setpoint.cli.command import Command, Lazy
from setpoint.cli.failures import Failed
from setpoint.cli.flags import duration, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.output import output_flags
from setpoint.cli.printing import make_printer
from setpoint.cli.resources import ALL_NAMESPACES
from setpoint.cli.writing import OUTPUT
from setpoint.cli.writing.results import as_typed
from setpoint.client.resources import builtin, path_of, query_of
from setpoint.meta.errors import ApiError
from setpoint.meta.gojson import indented
from setpoint.meta.objects import Obj

_KINDS = (
    ("events", "", "events"),
    ("replicationcontrollers", "", "replication-controllers"),
    ("services", "", "services"),
    ("daemonsets", "apps", "daemonsets"),
    ("deployments", "apps", "deployments"),
    ("replicasets", "apps", "replicasets"),
    ("pods", "", "pods"),
)


async def dump(invocation: Invocation) -> None:
    flags = invocation.flags
    where = _Where(invocation)
    where.show("nodes", await _list(invocation, "nodes", ""))
    if flags.all_namespaces:
        found = await invocation.client.list(builtin("namespaces"))
        namespaces = [one["metadata"]["name"] for one in found.items]
    else:
        namespaces = flags.namespaces or ["kube-system", invocation.namespace]
    for namespace in namespaces:
        pods: list[Obj] = []
        for plural, group, name in _KINDS:
            found_list = await _list(invocation, plural, group, namespace)
            where.show(f"{namespace}/{name}", found_list)
            pods = found_list["items"] or []
        for pod in pods:
            spec = pod.get("spec") or {}
            for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
                where.write(
                    f"{namespace}/{pod['metadata']['name']}/logs", ".txt", await _logs(invocation, pod, container)
                )
    if where.folder:
        invocation.print(f"Cluster info dumped to {flags.output_directory}")


class _Where:
    """Writes to standard output, or to files in a directory."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        flags = output_flags(invocation)
        self._json = flags.output == "json" and not flags.template
        self._printer = make_printer(flags)
        if flags.output == "name":
            raise Failed("list types are not supported by name printing: *v1.NodeList")
        self._extension = {"json": ".json", "yaml": ".yaml"}.get(flags.output, ".txt")
        given = invocation.flags.output_directory
        self.folder = given if given not in ("", "-") else ""
        """The directory; empty means standard output."""
        self._begun: set[str] = set()

    def show(self, name: str, found: Obj) -> None:
        text = indented(as_typed(found), ordered=False) + "\n" if self._json else self._printer.print(found)
        self.write(name, self._extension, text.encode("utf-8", "surrogateescape"))

    def write(self, name: str, extension: str, data: bytes) -> None:
        if not self.folder:
            self._invocation.write(data)
            return
        files, path = self._invocation.io.files, posixpath.join(self.folder, f"{name}{extension}")
        if path not in self._begun:
            files.make_directory(posixpath.dirname(path), private=True)
        files.write(path, data, append=path in self._begun, private=True)
        self._begun.add(path)


async def _list(invocation: Invocation, plural: str, group: str, namespace: str = "") -> Obj:
    resource = builtin(plural, group)
    found = await invocation.client.list(resource, namespace)
    items = [{key: value for key, value in one.items() if key not in ("kind", "apiVersion")} for one in found.items]
    for one in items:
        one["metadata"] = {key: value for key, value in one["metadata"].items() if key != "managedFields"}
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": found.resource_version},
        # kubectl reads these lists in protobuf, which does not distinguish an empty list from none.
        "items": items or None,
    }


async def _logs(invocation: Invocation, pod: Obj, container: Obj) -> bytes:
    meta, name = pod["metadata"], container["name"]
    about = f"logs for container {name} of pod {meta['namespace']}/{meta['name']} ====\n"
    path = path_of(builtin("pods"), meta["namespace"], meta["name"], "log")
    try:
        given = (await invocation.client.sender.request("GET", path, query_of({"container": name}))).body
    except ApiError as error:
        given = f"Request log error: {error.message}\n".encode()
    return f"==== START {about}".encode() + given + f"==== END {about}".encode()


DUMP = Command(
    "Dump relevant information for debugging and diagnosis",
    dump,
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


async def run(invocation: Invocation) -> None:
    namespace = invocation.flags.namespace or "kube-system"
    found = await invocation.client.list(
        builtin("services"), namespace, label_selector="kubernetes.io/cluster-service=true"
    )
    host = invocation.access.server.rstrip("/")
    _report(invocation, "Kubernetes control plane", host)
    for service in found.items:
        meta = service["metadata"]
        _report(invocation, (meta.get("labels") or {}).get("kubernetes.io/name") or meta["name"], _link(service, host))
    invocation.print("\nTo further debug and diagnose cluster problems, use 'setpoint cluster-info dump'.")


def _report(invocation: Invocation, name: str, link: str) -> None:
    green, yellow, plain = ("\x1b[0;32m", "\x1b[0;33m", "\x1b[0m") if invocation.io.colour else ("", "", "")
    invocation.print(f"{green}{name}{plain} is running at {yellow}{link}{plain}")


def _link(service: Obj, host: str) -> str:
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    ports = (service.get("spec") or {}).get("ports") or ()
    if ingress:
        address = ingress[0].get("ip") or ingress[0].get("hostname", "")
        return "".join(f"http://{address}:{port['port']} " for port in ports)
    name = service["metadata"]["name"]
    if ports:
        named = ports[0].get("name", "")
        if named == "https" or ports[0].get("port") == 443:
            name = f"https:{name}:{named}"
        elif named:
            name = f"{name}:{named}"
    return f"{host}/api/v1/namespaces/{service['metadata']['namespace']}/services/{name}/proxy"


COMMAND = Command(
    "Display cluster information",
    run,
    children={"dump": Lazy("Dump relevant information for debugging and diagnosis", __name__, constant="DUMP")},
    examples="""
    setpoint cluster-info
    """,
)
