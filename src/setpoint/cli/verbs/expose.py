"""`expose`: create a Service for an existing object."""

from __future__ import annotations

import re

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES, Target, choose, fetch
from setpoint.cli.verbs.create.making import saved
from setpoint.cli.writing import DRY_RUN, OUTPUT, RECORD, SAVE_CONFIG, DryRun, Results, dry_run, field_manager, recorded
from setpoint.cli.writing.results import overridden, overriding
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

_EXPOSED = (
    ("", "ReplicationController"),
    ("", "Service"),
    ("", "Pod"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
)
_LONGEST_NAME = 63


async def run(invocation: Invocation) -> None:
    dry = dry_run(invocation)
    results = Results(invocation, dry)
    errors: list[Exception] = []
    chosen = await choose(invocation)
    files = invocation.flags.filename or invocation.flags.kustomize
    for target in chosen.targets if files else await fetch(invocation, chosen, errors):
        try:
            await _expose(invocation, target, dry, results)
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)


async def _expose(invocation: Invocation, target: Target, dry: DryRun, results: Results) -> None:
    kind, group = target.resource.kind, target.resource.group
    if (group, kind) not in _EXPOSED:
        raise Failed(f"cannot expose a {kind}.{group}" if group else f"cannot expose a {kind}")
    service = recorded(invocation, overridden(invocation, service_for(invocation, target.name, kind, target.obj or {})))
    if dry is DryRun.CLIENT:
        if invocation.namespace_given:
            name = service["metadata"].pop("name")
            service["metadata"] = {"name": name, "namespace": invocation.flags.namespace, **service["metadata"]}
        results.add(service, "exposed", typed=True)
        return
    if invocation.flags.save_config:
        service = saved(service)
    made = await invocation.client.create(
        service, dry_run=dry is DryRun.SERVER, field_manager=invocation.flags.field_manager
    )
    results.add(made, "exposed", typed=True)


def service_for(invocation: Invocation, name: str, kind: str, obj: Obj) -> Obj:
    flags = invocation.flags
    selector = _pairs(flags.pod_selector) if flags.pod_selector else _selector(kind, obj)
    exposed = _exposed_ports(kind, obj)
    given = [flags.port] if flags.port else list(exposed)
    if not given and flags.cluster_ip != "None":
        raise Failed("couldn't find port via --port flag or introspection")
    spec: Obj = {"ports": _ports(given, exposed, flags.protocol, flags.target_port)} if given else {}
    spec["selector"] = selector
    if flags.cluster_ip:
        spec["clusterIP"] = flags.cluster_ip
    if flags.type:
        spec["type"] = flags.type
    if flags.external_ip:
        spec["externalIPs"] = [flags.external_ip]
    if flags.session_affinity:
        if flags.session_affinity not in ("None", "ClientIP"):
            raise Failed(f"unknown session affinity: {flags.session_affinity}")
        spec["sessionAffinity"] = flags.session_affinity
    if flags.type == "LoadBalancer" and flags.load_balancer_ip:
        spec["loadBalancerIP"] = flags.load_balancer_ip
    labels = _pairs(flags.labels) if flags.labels else dict(obj.get("metadata", {}).get("labels") or {})
    meta: Obj = {"name": flags.name or name[:_LONGEST_NAME], "creationTimestamp": None}
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": meta | ({"labels": labels} if labels else {}),
        "spec": spec,
        "status": {"loadBalancer": {}},
    }


def _selector(kind: str, obj: Obj) -> dict[str, str]:
    spec = obj.get("spec") or {}
    unknown = "couldn't retrieve selectors via --selector flag or introspection: "
    if kind == "Pod":
        labels = (obj.get("metadata") or {}).get("labels")
        if not labels:
            raise Failed(f"{unknown}the pod has no labels and cannot be exposed")
        return dict(labels)
    if kind == "Service" and spec.get("selector") is None:
        raise Failed(f"{unknown}the service has no pod selector set")
    if kind in ("Service", "ReplicationController"):
        if not spec.get("selector"):
            raise Failed("selector must be specified")
        return dict(spec["selector"])
    selector = spec.get("selector") or {}
    if not selector.get("matchLabels"):
        raise Failed(f"{unknown}invalid {kind.lower()}: no selectors, therefore cannot be exposed")
    if selector.get("matchExpressions"):
        shown = " ".join(
            f"{{Key:{one.get('key')} Operator:{one.get('operator')} Values:[{' '.join(one.get('values') or ())}]}}"
            for one in selector["matchExpressions"]
        )
        raise Failed(f'{unknown}couldn\'t convert expressions - "[{shown}]" to map-based selector format')
    return dict(selector["matchLabels"])


def _exposed_ports(kind: str, obj: Obj) -> dict[str, list[str]]:
    """Return the protocols of each port, in the order of the ports."""
    spec = obj.get("spec") or {}
    found: dict[str, list[str]] = {}
    if kind == "Service":
        ports = [(one.get("port"), one.get("protocol")) for one in spec.get("ports") or ()]
    else:
        pod = spec if kind == "Pod" else (spec.get("template") or {}).get("spec") or {}
        ports = [
            (one.get("containerPort"), one.get("protocol"))
            for container in pod.get("containers") or ()
            for one in container.get("ports") or ()
        ]
    for port, protocol in ports:
        found.setdefault(str(port), []).append(protocol or "TCP")
    return found


def _ports(given: list[str], exposed: dict[str, list[str]], protocol: str, target: str) -> list[Obj]:
    words = [word for one in given for word in one.split(",")]
    found: list[Obj] = []
    for index, word in enumerate(words, 1):
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", word):
            raise Failed(f"strconv.Atoi: parsing {quote(word)}: invalid syntax")
        protocols = [protocol] if protocol else exposed.get(word) or ["TCP"]
        for one in protocols:
            name = f"port-{index}" if len(words) > 1 else ""
            if len(protocols) > 1:
                name = f"port-{index}-{one.lower()}"
            port: Obj = {"name": name} if name else {}
            found.append(port | {"protocol": one, "port": int(word), "targetPort": _target(target) or int(word)})
    return found


def _target(given: str) -> int | str:
    return int(given) if re.fullmatch(r"[+-]?[0-9]{1,9}", given) else given


def _pairs(given: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in given.split(","):
        parts = pair.split("=")
        if len(parts) != 2:
            raise Failed(f"unexpected label spec: {pair}")
        if not parts[0]:
            raise Failed("unexpected empty label key")
        found[parts[0]] = parts[1]
    return found


COMMAND = Command(
    "Take a replication controller, service, deployment or pod and expose it as a new Kubernetes service",
    run,
    (
        *OUTPUT,
        *RECORD,
        *FILES,
        *DRY_RUN,
        *SAVE_CONFIG,
        *field_manager("kubectl-expose"),
        *overriding("merge"),
        text("protocol", help="The network protocol for the service to be created; unset: what is exposed has."),
        text("port", help="The port that the service should serve on; unset: as what is exposed."),
        text("type", help="Type for this service: ClusterIP, NodePort, LoadBalancer, or ExternalName."),
        text("load-balancer-ip", help="IP to assign to the LoadBalancer."),
        text(
            "selector",
            help="Which Pods it is for, as equalities; unset: as what is exposed selects.",
            attribute="pod_selector",
        ),
        text("labels", "l", help="Labels to apply to the service created by this call."),
        text("target-port", help="Name or number of the port on the container; unset: the service's own."),
        text("external-ip", help="An additional external IP address to accept for the service."),
        text("name", help="The name for the newly created object."),
        text("session-affinity", help="The session affinity for the service: 'None', 'ClientIP'"),
        text("cluster-ip", help="ClusterIP to be assigned to the service; 'None' for a headless service."),
    ),
    usage="(-f FILENAME | TYPE NAME) [--port=port] [--protocol=TCP|UDP|SCTP] [--target-port=number-or-name] "
    "[--name=name] [--external-ip=external-ip-of-service] [--type=type]",
    examples="""
    # A service at port 80 for a deployment that listens at 8080
    setpoint expose deployment web --port=80 --target-port=8080

    # One for a Pod, under another name
    setpoint expose pod web --port=80 --name=front
    """,
)
