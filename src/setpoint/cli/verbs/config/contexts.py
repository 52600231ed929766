"""`config use-context`, `set-context` and `rename-context`."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.kubeconfig_files import Entry, Files
from setpoint.client.cluster_choice import display_path
from setpoint.meta.goformat import quote


def use(call: Invocation) -> None:
    (name,) = arguments(call, 1)
    if not name:
        raise Failed("empty context names are not allowed")
    files = Files(call)
    with files.changing() as settings:
        if name not in settings.contexts:
            raise Failed(f"no context exists with the name: {quote(name)}")
        settings.current_context = name
    call.print(f"Switched to context {quote(name)}.")
    if files.local is not None:
        call.print_err(
            f"In this directory, commands still use its own cluster ({display_path(files.local)}): "
            f"set --context {name} to use this one here."
        )


def set_context(call: Invocation) -> None:
    flags, args = call.flags, call.args
    if len(args) > 1:
        arguments(call, 1)
    name = args[0] if args else ""
    if not name and not flags.current:
        raise Failed("you must specify a non-empty context name or --current")
    if name and flags.current:
        raise Failed("you cannot specify both a context name and --current")
    files = Files(call)
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
        settings.contexts[name] = entry._replace(body={key: value for key, value in body.items() if _kept(key, value)})
    call.print(f"Context {quote(name)} {'modified' if exists else 'created'}.")


def _kept(key: str, value: object) -> bool:
    return bool(value) or key != "namespace"


def rename(call: Invocation) -> None:
    old, new = arguments(call, 2)
    if not new:
        raise Failed("You must specify a new non-empty context name")
    files = Files(call)
    with files.changing() as settings:
        if old not in settings.contexts:
            raise Failed(f"cannot rename the context {quote(old)}, it's not in {files.default}")
        if new in settings.contexts:
            message = f"the context {quote(new)} already exists in {files.default}"
            raise Failed(f"cannot rename the context {quote(old)}, {message}")
        settings.contexts[new] = settings.contexts.pop(old)
        if settings.current_context == old:
            settings.current_context = new
    call.print(f"Context {quote(old)} renamed to {quote(new)}.")


def arguments(call: Invocation, count: int) -> list[str]:
    if len(call.args) != count:
        call.usage(f"Unexpected args: [{' '.join(call.args)}]")
    return call.args


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
