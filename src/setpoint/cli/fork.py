"""`setpoint fork` and `forks`: logical copies of a running cluster, below a path of its server."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from setpoint.cli.command import Command
from setpoint.cli.escaping import escaped
from setpoint.cli.failures import Failed
from setpoint.cli.flags import UsageProblem, duration, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.simulating import FAULTS, fault_texts
from setpoint.meta.errors import AlreadyExists, NotFound

if TYPE_CHECKING:
    from setpoint.client.kubeconfig import Access

_PATH = "/setpoint/v1/forks"


async def fork(invocation: Invocation) -> None:
    flags = invocation.flags
    if len(invocation.args) > 1:
        raise UsageProblem(f"unexpected arguments: {invocation.args[1:]}")
    if flags.until not in ("", "settled"):
        raise UsageProblem(f"--until must be settled, not {flags.until!r}")
    if flags.output not in ("", "kubeconfig"):
        raise UsageProblem(f"--output must be kubeconfig, not {flags.output!r}")
    if flags.until and flags.advance:
        raise UsageProblem("--advance and --until cannot be used together")
    passing: dict[str, Any] = {"advance": flags.advance} if flags.advance else {}
    if flags.until:
        passing = {"until": flags.until}
    if flags.faults:
        if not passing:
            raise UsageProblem("--faults needs --advance or --until: nothing runs while time stands still")
        passing["faults"] = fault_texts(flags.faults)
    wanted = {"at": flags.at, "virtual": flags.virtual, "name": invocation.args[0] if invocation.args else ""}
    body = {**{key: value for key, value in wanted.items() if value}, **passing}
    send = invocation.client.sender.json
    try:
        found = await send("POST", _PATH, body=body)
    except AlreadyExists:
        existing = f"{_PATH}/{invocation.args[0]}"
        if flags.at or not (passing or flags.output):
            raise
        found = await (send("POST", existing, body=passing) if passing else send("GET", existing))
    except NotFound:
        raise Failed("this server has no forks: it is not a running `setpoint up` or `setpoint apiserver`") from None
    server = f"{invocation.access.server.rstrip('/')}{found['path']}"
    if flags.output == "kubeconfig":
        invocation.print(json.dumps(kubeconfig(invocation.access, server, found["name"]), indent=2))
        return
    _describe(invocation, found, server)


def _describe(invocation: Invocation, found: dict[str, Any], server: str) -> None:
    name = found["name"]
    invocation.print(f"Fork {name} branched off at revision {found['branchedAt']}; its time is {found['now']}.")
    if "writes" in found:
        state = "has settled" if found["settled"] else "is still changing"
        activity = f"The loops made {found['writes']} writes"
        invocation.print(f"{activity}, and the fork {state}." if invocation.flags.until else f"{activity}.")
    for fault in found["faults"]["faults"] if "faults" in found else ():
        invocation.print(escaped(f"  {fault['text']}"))
    invocation.print(f"  kubectl --server {server} get pods -A")
    invocation.print(f"  setpoint fork {name} -o kubeconfig > {name}.kubeconfig")
    if found["virtual"]:
        invocation.print(f"Time stands still in it: setpoint fork {name} --advance 1h")
    invocation.print("Its nodes are simulated, and Service addresses lead nowhere.")
    for each in found["leftOut"]:
        invocation.print(f"  {each}")


def kubeconfig(access: Access, server: str, name: str) -> dict[str, Any]:
    """Return a kubeconfig for the same user and another server."""
    cluster: dict[str, Any] = {"server": server}
    if access.insecure:
        cluster["insecure-skip-tls-verify"] = True
    if access.tls_server_name:
        cluster["tls-server-name"] = access.tls_server_name
    if access.ca:
        cluster["certificate-authority-data"] = b64encode(access.ca).decode()
    user: dict[str, Any] = {}
    if access.certificate and access.key:
        user["client-certificate-data"] = b64encode(access.certificate).decode()
        user["client-key-data"] = b64encode(access.key).decode()
    if access.token:
        user["token"] = access.token
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


async def remove(invocation: Invocation) -> None:
    if not invocation.args:
        invocation.usage("name the fork: setpoint fork rm NAME")
    for name in invocation.args:
        await invocation.client.sender.json("DELETE", f"{_PATH}/{name}")
        invocation.print(f"Fork {name} is removed.")


async def forks(invocation: Invocation) -> None:
    invocation.no_arguments()
    try:
        found = (await invocation.client.sender.json("GET", _PATH))["forks"]
    except NotFound:
        found = []
    if not found:
        invocation.print("There are no forks. `setpoint fork NAME` creates one.")
        return
    table = [["NAME", "TIME", "STATE", "BRANCHED AT", "REVISION", "OBJECTS", "PATH"]]
    for each in found:
        time = f"{each['now']}{' (stands still)' if each['virtual'] else ''}"
        numbers = [str(each[field]) for field in ("branchedAt", "revision", "objects")]
        table.append([each["name"], time, each["state"], *numbers, each["path"]])
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        invocation.print("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


COMMAND = Command(
    "Branch off a copy of the running cluster, live or in virtual time",
    fork,
    (
        text("at", help="The moment at which it branches off: a revision, a time, -5m, or a mark. By default now."),
        switch("virtual", help="Time stands still in the fork, except when it is advanced."),
        duration("advance", help="Let this much virtual time pass in a new or existing fork: 1h30m."),
        text("until", help="Let virtual time pass until the loops are quiet: settled."),
        FAULTS,
        text("output", "o", help="Print a kubeconfig instead of a description: kubeconfig."),
    ),
    usage="[NAME]",
    about="""A fork is a cluster in the memory of the server, below the path /forks/NAME. It starts with all objects of
the cluster; changes in one are not visible in the other. All its nodes are simulated. It ends with the server.""",
    children={"rm": Command("Remove forks", remove, usage="NAME...", aliases=("remove", "delete"))},
    examples="""
    # Try something without consequences
    setpoint fork try
    kubectl --server https://127.0.0.1:6443/forks/try delete deployment web

    # What will the cluster be in a day?
    setpoint fork tomorrow --virtual --advance 24h

    # What if the scheduler sees nothing for five minutes?
    setpoint fork tomorrow --advance 1h --faults scheduler=stale:1/5m
    """,
)
FORKS = Command("List the forks of the running cluster", forks)
