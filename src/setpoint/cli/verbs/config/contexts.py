"""`config` commands that read, choose, change and delete the contexts, clusters and users of a kubeconfig."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.kubeconfig_files import Entry, Files
from setpoint.cli.tabwriter import align
from setpoint.client.cluster_choice import display_path
from setpoint.meta.goformat import quote


def use(invocation: Invocation) -> None:
    (name,) = arguments(invocation, 1)
    if not name:
        raise Failed("empty context names are not allowed")
    files = Files(invocation)
    with files.changing() as settings:
        if name not in settings.contexts:
            raise Failed(f"no context exists with the name: {quote(name)}")
        settings.current_context = name
    invocation.print(f"Switched to context {quote(name)}.")
    if files.local is not None:
        invocation.print_err(
            f"In this directory, commands still use its own cluster ({display_path(files.local)}): "
            f"set --context {name} to use this one here."
        )


def set_context(invocation: Invocation) -> None:
    flags, args = invocation.flags, invocation.args
    if len(args) > 1:
        arguments(invocation, 1)
    name = args[0] if args else ""
    if not name and not flags.current:
        raise Failed("you must specify a non-empty context name or --current")
    if name and flags.current:
        raise Failed("you cannot specify both a context name and --current")
    files = Files(invocation)
    if flags.current and files.local is not None:
        raise Failed(
            f"the current context is that of the cluster of this directory ({display_path(files.local)}), whose "
            "kubeconfig this command does not change: name a context, or merge the cluster into your kubeconfig with "
            "`setpoint kubeconfig --merge`"
        )
    with files.changing() as settings:
        if flags.current:
            name = settings.current_context
            if not name:
                raise Failed("no current context is set")
        exists = name in settings.contexts
        entry = settings.contexts.get(name, Entry({"cluster": "", "user": ""}))
        given = {key: getattr(flags, key) for key in ("cluster", "user", "namespace") if flags.given(key)}
        body = {**entry.body, **given}
        settings.contexts[name] = entry._replace(
            body={key: value for key, value in body.items() if _is_set(key, value)}
        )
    invocation.print(f"Context {quote(name)} {'modified' if exists else 'created'}.")


def _is_set(key: str, value: object) -> bool:
    return bool(value) or key != "namespace"


def rename(invocation: Invocation) -> None:
    old, new = arguments(invocation, 2)
    if not new:
        raise Failed("You must specify a new non-empty context name")
    files = Files(invocation)
    with files.changing() as settings:
        if old not in settings.contexts:
            raise Failed(f"cannot rename the context {quote(old)}, it's not in {files.default}")
        if new in settings.contexts:
            message = f"the context {quote(new)} already exists in {files.default}"
            raise Failed(f"cannot rename the context {quote(old)}, {message}")
        settings.contexts[new] = settings.contexts.pop(old)
        if settings.current_context == old:
            settings.current_context = new
    invocation.print(f"Context {quote(old)} renamed to {quote(new)}.")


def arguments(invocation: Invocation, count: int) -> list[str]:
    if len(invocation.args) != count:
        invocation.usage(f"Unexpected args: [{' '.join(invocation.args)}]")
    return invocation.args


USE = Command(
    "Set the current-context in a kubeconfig file",
    use,
    usage="CONTEXT_NAME",
    aliases=("use",),
    examples="""
    setpoint config use-context staging
    """,
)
SET = Command(
    "Set a context entry in kubeconfig",
    set_context,
    (
        switch("current", help="Modify the current context"),
        text("cluster", help="The cluster that the context is about."),
        text("user", help="The user as whom to talk to it."),
        text("namespace", "n", help="The namespace of commands that name none."),
    ),
    usage="[NAME | --current] [--cluster=cluster_nickname] [--user=user_nickname] [--namespace=namespace]",
    about="Settings that are not given are unchanged.",
    examples="""
    # Another namespace from now on
    setpoint config set-context --current --namespace=shop

    # A new one
    setpoint config set-context staging --cluster=staging --user=me
    """,
)
RENAME = Command(
    "Rename a context from the kubeconfig file",
    rename,
    usage="CONTEXT_NAME NEW_NAME",
    examples="""
    setpoint config rename-context kubernetes-admin@kubernetes home
    """,
)


_HEADER = ("CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE")


def current_context(invocation: Invocation) -> None:
    name = Files(invocation).shown().current_context
    if not name:
        raise Failed("current-context is not set")
    invocation.print(name)


def get_contexts(invocation: Invocation) -> None:
    form = invocation.flags.output
    if form not in ("", "name"):
        raise Failed(
            f"--output {form} is not available in setpoint config get-contexts; resetting to default output format"
        )
    settings = Files(invocation).shown()
    known = settings.contexts
    errors = [Failed(f"context {name} not found") for name in invocation.args if name not in known]
    names = sorted(name for name in invocation.args or known if name in known)
    if form == "name":
        invocation.print("".join(f"{name}\n" for name in names), end="")
    else:
        rows: list[tuple[str, ...]] = [] if invocation.flags.no_headers else [_HEADER]
        for name in names:
            body = known[name].body
            mark = "*" if name == settings.current_context else " "
            rows.append((mark, name, *(body.get(key) or "" for key in ("cluster", "user", "namespace"))))
        invocation.print(align("".join("\t".join(row) + "\n" for row in rows), least=6, padding=3), end="")
    raise_all(errors)


def get_clusters(invocation: Invocation) -> None:
    invocation.print("\n".join(["NAME", *sorted(Files(invocation).shown().clusters)]))


def get_users(invocation: Invocation) -> None:
    invocation.print("\n".join(["NAME", *sorted(Files(invocation).shown().users)]))


CURRENT_CONTEXT = Command("Display the current-context", current_context)
GET_CONTEXTS = Command(
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
GET_CLUSTERS = Command("Display clusters defined in the kubeconfig", get_clusters)
GET_USERS = Command("Display users defined in the kubeconfig", get_users)


def _command(section: str, what: str) -> Command:
    def run(invocation: Invocation) -> None:
        if len(invocation.args) != 1:
            invocation.usage(f"{what} to delete is required")
        name, files = invocation.args[0], Files(invocation)
        with files.changing() as settings:
            entries = settings.section(section)
            if name not in entries:
                raise Failed(f"cannot delete {what} {name}, not in {files.default}")
            del entries[name]
            if section == "contexts" and settings.current_context == name:
                invocation.print_err(
                    'warning: this removed your active context, use "setpoint config use-context" to select a '
                    "different one"
                )
        invocation.print(f"deleted {what} {name} from {files.default}")

    return Command(
        f"Delete the specified {what} from the kubeconfig",
        run,
        usage="NAME",
        examples=f"""
        setpoint config delete-{what} staging
        """,
    )


DELETE_CLUSTER = _command("clusters", "cluster")
DELETE_CONTEXT = _command("contexts", "context")
DELETE_USER = _command("users", "user")
