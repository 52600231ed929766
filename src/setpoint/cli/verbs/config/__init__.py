"""`config`: read and change kubeconfig files."""

from __future__ import annotations

from setpoint.cli.command import Command, Lazy


def _of(module: str, summary: str, constant: str = "COMMAND", *aliases: str) -> Lazy:
    return Lazy(summary, f"{__name__}.{module}", aliases, constant=constant)


COMMAND = Command(
    "Modify kubeconfig files",
    children={
        "current-context": _of("contexts", "Display the current-context", "CURRENT_CONTEXT"),
        "delete-cluster": _of("contexts", "Delete the specified cluster from the kubeconfig", "DELETE_CLUSTER"),
        "delete-context": _of("contexts", "Delete the specified context from the kubeconfig", "DELETE_CONTEXT"),
        "delete-user": _of("contexts", "Delete the specified user from the kubeconfig", "DELETE_USER"),
        "get-clusters": _of("contexts", "Display clusters defined in the kubeconfig", "GET_CLUSTERS"),
        "get-contexts": _of("contexts", "Describe one or many contexts", "GET_CONTEXTS"),
        "get-users": _of("contexts", "Display users defined in the kubeconfig", "GET_USERS"),
        "rename-context": _of("contexts", "Rename a context from the kubeconfig file", "RENAME"),
        "set": _of("properties", "Set an individual value in a kubeconfig file", "SET"),
        "set-cluster": _of("entries", "Set a cluster entry in kubeconfig", "SET_CLUSTER"),
        "set-context": _of("contexts", "Set a context entry in kubeconfig", "SET"),
        "set-credentials": _of("entries", "Set a user entry in kubeconfig", "SET_CREDENTIALS"),
        "unset": _of("properties", "Unset an individual value in a kubeconfig file", "UNSET"),
        "use-context": _of("contexts", "Set the current-context in a kubeconfig file", "USE", "use"),
        "view": _of("view", "Display merged kubeconfig settings or a specified kubeconfig file"),
    },
    usage="SUBCOMMAND",
    about="""
    Which files: the one that --kubeconfig names, else those in KUBECONFIG, read as one, else ~/.kube/config. An entry
    that is changed is written to the file that has it, a new one to the first file that exists. The cluster of this
    directory, if there is one and no file is named, is shown too, and nothing is written to its file.
    """,
    examples="""
    # Which there are, and another one from now on
    setpoint config get-contexts
    setpoint config use-context staging

    # Another namespace from now on
    setpoint config set-context --current --namespace=shop
    """,
)
