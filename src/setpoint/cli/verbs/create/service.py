"""`create service`: one subcommand for each type."""

from __future__ import annotations

from typing import Any

from setpoint.cli.command import Command, Run
from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag, number, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.create.making import FLAGS, begin, metadata
from setpoint.meta import names
from setpoint.meta.goformat import quote

_TCP = texts("tcp", help="Port pairs can be specified as '<port>:<targetPort>'.")


def _of(type_: str) -> Run:
    async def run(invocation: Invocation) -> None:
        making = begin(invocation)
        flags = invocation.flags
        address = flags.clusterip if type_ == "ClusterIP" else ""
        outside = flags.external_name if type_ == "ExternalName" else ""
        if address != "None" and not flags.tcp and type_ != "ExternalName":
            raise Failed("at least one tcp port specifier must be provided")
        if type_ == "ExternalName" and names.dns1123_subdomain(outside):
            raise Failed(f"invalid service external name {outside}")
        ports = [_port(pair, flags.node_port if type_ == "NodePort" else 0) for pair in flags.tcp]
        labels = {"app": making.name}
        spec: dict[str, Any] = {"ports": ports} if ports else {}
        spec["selector"] = labels
        if address:
            spec["clusterIP"] = address
        spec["type"] = type_
        if outside:
            spec["externalName"] = outside
        service = {
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": metadata(invocation, making.name, labels=labels),
            "spec": spec,
            "status": {"loadBalancer": {}},
        }
        await making.finish(service, f"failed to create {type_} service: ")

    return run


def _port(pair: str, node_port: int) -> dict[str, Any]:
    parts = pair.split(":")
    number = _parsed(parts[0])
    target: int | str = number
    if len(parts) > 1:
        target = _integer(parts[1], parts[1])
        problems = names.port_name(target) if isinstance(target, str) else names.port_number(target)
        if problems:
            raise Failed(",".join(problems))
    port = {"name": pair.replace(":", "-"), "protocol": "TCP", "port": number, "targetPort": target}
    return port | ({"nodePort": node_port} if node_port else {})


def _parsed(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise Failed(f"strconv.ParseUint: parsing {quote(text)}: invalid syntax")
    if int(text[:20]) >= 2**16:
        raise Failed(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return int(text)


def _integer(text: str, otherwise: str) -> int | str:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else otherwise


def _command(type_: str, *flags: Flag, example: str) -> Command:
    article = "an" if type_[0] == "E" else "a"
    return Command(
        f"Create {article} {type_} service",
        _of(type_),
        (*FLAGS, _TCP, *flags),
        usage="NAME [--tcp=<port>:<targetPort>] [--dry-run=server|client|none]",
        examples=example,
    )


COMMAND = Command(
    "Create a service using a specified subcommand",
    children={
        "clusterip": _command(
            "ClusterIP",
            text("clusterip", help="Your own cluster IP, or 'None' for a headless service."),
            example="""
            # A service for the Pods that are labelled app=web
            setpoint create service clusterip web --tcp=80:8080

            # Without an address of its own
            setpoint create service clusterip web --clusterip=None
            """,
        ),
        "externalname": _command(
            "ExternalName",
            text("external-name", help="External name of service", required=True),
            example="""
            # Another name for something outside
            setpoint create service externalname db --external-name=db.example.com
            """,
        ),
        "loadbalancer": _command(
            "LoadBalancer",
            example="""
            setpoint create service loadbalancer web --tcp=80:8080
            """,
        ),
        "nodeport": _command(
            "NodePort",
            number("node-port", help="Port used to expose the service on each node in a cluster."),
            example="""
            setpoint create service nodeport web --tcp=80:8080 --node-port=30080
            """,
        ),
    },
    aliases=("svc",),
)
