"""`config current-context`, `get-contexts`, `get-clusters` and `get-users`."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.kubeconfig_files import Files
from setpoint.cli.tabwriter import align

_HEADER = ("CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE")


def current_context(call: Invocation) -> None:
    name = Files(call).shown().current_context
    if not name:
        raise Failed("current-context is not set")
    call.print(name)


def get_contexts(call: Invocation) -> None:
    form = call.flags.output
    if form not in ("", "name"):
        raise Failed(
            f"--output {form} is not available in setpoint config get-contexts; resetting to default output format"
        )
    settings = Files(call).shown()
    known = settings.contexts
    errors = [Failed(f"context {name} not found") for name in call.args if name not in known]
    names = sorted(name for name in call.args or known if name in known)
    if form == "name":
        call.print("".join(f"{name}\n" for name in names), end="")
    else:
        rows: list[tuple[str, ...]] = [] if call.flags.no_headers else [_HEADER]
        for name in names:
            body = known[name].body
            mark = "*" if name == settings.current_context else " "
            rows.append((mark, name, *(body.get(key) or "" for key in ("cluster", "user", "namespace"))))
        call.print(align("".join("\t".join(row) + "\n" for row in rows), least=6, padding=3), end="")
    raise_all(errors)


def get_clusters(call: Invocation) -> None:
    call.print("\n".join(["NAME", *sorted(Files(call).shown().clusters)]))


def get_users(call: Invocation) -> None:
    call.print("\n".join(["NAME", *sorted(Files(call).shown().users)]))


CURRENT_CONTEXT = Command("Display the current-context", current_context)
CONTEXTS = Command(
    "Describe one or many contexts",
    get_contexts,
    (
        switch("no-headers", help="Do not print headers."),
        text("output", "o", help="Output format. One of: (name).", choices=("name",)),
    ),
    usage="[NAME...] [(-o|--output=)name)]",
    examples="""
    # All of them; the current one has a star
    setpoint config get-contexts

    # Their names, for scripts
    setpoint config get-contexts -o name
    """,
)
CLUSTERS = Command("Display clusters defined in the kubeconfig", get_clusters)
USERS = Command("Display users defined in the kubeconfig", get_users)
