"""All commands by name, with their summary; each is imported when it is called."""

from __future__ import annotations

from setpoint.cli.command import Command, Lazy


def _of(module: str, summary: str, *aliases: str, hidden: bool = False, constant: str = "COMMAND") -> Lazy:
    return Lazy(summary, f"setpoint.cli.{module}", aliases, hidden, constant)


GROUPS: dict[str, dict[str, Lazy]] = {
    "A cluster": {
        "up": _of("up", "Run a whole cluster: API server, controllers, scheduler and simulated nodes"),
        "down": _of("down", "Stop the cluster of a data directory; what it holds stays"),
        "status": _of("status", "Show the state of a cluster: components, nodes, Pods, store, loops"),
        "list": _of("list", "List the clusters of this machine: name, directory, address, state, nodes, age", "ls"),
        "page": _of("page", "See a cluster in a browser: print a link to the page, or serve it for any cluster"),
        "class": _of("classroom", "Teach a class: every learner gets clusters and a page of their own"),
        "watch": _of("watch", "Watch a cluster live, on the whole screen"),
        "loops": _of("loops", "Show the control loops: queues, back-offs, rates; or pause, step and slow them down"),
        "fault": _of("fault", "Inject a fault: a node, container, image, component or the API server fails"),
        "demo": _of("demo", "See a control plane at work, one step at a time"),
        "lesson": _of("lesson", "Learn how a control plane works, by doing"),
        "backup": _of("backup", "Write the state of a cluster, running or stopped, to a file"),
        "restore": _of("restore", "Restore objects as they were at a moment, or a stopped cluster from a backup"),
        "store": _of("store", "Verify or copy the store of a cluster, without a server"),
        "reset": _of("reset", "Stop the cluster of a data directory and remove everything that it holds"),
        "token": _of("token", "Create tokens with which nodes and control plane machines join the cluster"),
        "member": _of("member", "List the members of the etcd of the control plane; remove one, or run one alone"),
        "kubeconfig": _of("kubeconfig", "Print the administrator's kubeconfig of a cluster, or merge it into another"),
    },
    "Copies and predictions": {
        "snapshot": _of("snapshot", "Save the objects of a cluster to a file, or start a cluster from such a file"),
        "fork": _of("fork", "Branch off a copy of the running cluster, live or in virtual time"),
        "forks": _of("fork", "List the forks of the running cluster", constant="FORKS"),
        "plan": _of("plan", "Predict what every loop of the cluster would do about a change, on a copy"),
        "twin": _of("twin", "Run a simulated copy of any Kubernetes cluster, made with read access alone"),
        "record": _of("record", "Record what happens in any cluster to a file, until Ctrl-C"),
        "replay": _of("record", "Play a recording, or repeat its inputs in virtual time", constant="REPLAY"),
    },
    "Its parts, each in a process of its own": {
        "apiserver": _of("apiserver", "Run the API server alone"),
        "controller-manager": _of("controller_manager", "Run the controllers alone, against any Kubernetes API server"),
        "scheduler": _of("scheduler", "Run the scheduler alone, against any Kubernetes API server"),
        "node": _of("node", "Run this machine as a real node, which runs containers; join, check, leave"),
        "nodes": _of("nodes", "Run simulated nodes alone; or add, stop, start, partition and remove some"),
    },
    "Basic commands": {
        "create": _of("verbs.create", "Create a resource from a file or from stdin"),
        "expose": _of(
            "verbs.expose",
            "Take a replication controller, service, deployment or pod and expose it as a new service",
        ),
        "run": _of("verbs.run", "Run a particular image on the cluster"),
        "set": _of("verbs.set", "Set specific features on objects"),
        "explain": _of("verbs.explain", "Get documentation for a resource"),
        "get": _of("verbs.get", "Display one or many resources"),
        "edit": _of("verbs.edit", "Edit a resource on the server"),
        "delete": _of(
            "verbs.delete",
            "Delete resources by file names, stdin, resources and names, or by resources and label selector",
        ),
    },
    "Deploy commands": {
        "autoscale": _of(
            "verbs.autoscale", "Auto-scale a deployment, replica set, stateful set, or replication controller"
        ),
        "rollout": _of("verbs.rollout", "Manage the rollout of a resource"),
        "scale": _of("verbs.scale", "Set a new size for a deployment, replica set, or replication controller"),
    },
    "Cluster management": {
        "certificate": _of("verbs.certificate", "Modify certificate resources"),
        "cluster-info": _of("verbs.cluster_info", "Display cluster information"),
        "top": _of("verbs.top", "Display resource (CPU/memory) usage"),
        "cordon": _of("verbs.drain", "Mark node as unschedulable", constant="CORDON"),
        "uncordon": _of("verbs.drain", "Mark node as schedulable", constant="UNCORDON"),
        "drain": _of("verbs.drain", "Drain node in preparation for maintenance"),
        "taint": _of("verbs.taint", "Update the taints on one or more nodes"),
    },
    "Advanced commands": {
        "diff": _of("verbs.diff", "Diff the live version against a would-be applied version"),
        "apply": _of("verbs.apply", "Apply a configuration to a resource by file name or stdin"),
        "patch": _of("verbs.patch", "Update fields of a resource"),
        "replace": _of("verbs.replace", "Replace a resource by file name or stdin"),
        "kustomize": _of("verbs.kustomize", "Build a kustomization target from a directory or URL"),
        "wait": _of("verbs.wait", "Wait for a specific condition on one or many resources"),
    },
    "Troubleshooting and debugging": {
        "auth": _of("verbs.auth", "Inspect authorization"),
        "events": _of("verbs.events", "List events"),
        "logs": _of("verbs.logs", "Print the logs for a container in a pod"),
        "why": _of("why", "Explain why an object is as it is, or why something does not happen"),
        "history": _of("history", "Show the changes of an object: when, who, what"),
        "undo": _of("undo", "Undo one write: show the plan, and carry it out after confirmation"),
        "mark": _of("history", "Give the present, or another moment, a name for --at", constant="MARK"),
        "describe": _of("verbs.describe", "Show details of a specific resource or group of resources"),
        "attach": _of("verbs.attach", "Attach to a running container"),
        "exec": _of("verbs.exec", "Execute a command in a container"),
        "port-forward": _of("verbs.port_forward", "Forward one or more local ports to a pod"),
        "proxy": _of("verbs.proxy", "Run a proxy to the Kubernetes API server"),
        "cp": _of("verbs.cp", "Copy files and directories to and from containers"),
        "debug": _of("verbs.debug", "Create debugging sessions for troubleshooting workloads and nodes"),
    },
    "Settings and other commands": {
        "label": _of("verbs.label", "Update the labels on a resource"),
        "annotate": _of("verbs.annotate", "Update the annotations on a resource"),
        "api-resources": _of("verbs.api_resources", "Print the supported API resources on the server"),
        "api-versions": _of(
            "verbs.api_resources", "Print the supported API versions on the server", constant="VERSIONS"
        ),
        "completion": _of("verbs.completion", "Output shell completion code for the specified shell"),
        "__apiserver-worker": _of("apiserver", "Serve requests of an API server", hidden=True, constant="WORKER"),
        "__class-worker": _of("classroom", "Serve the seats of a class", hidden=True, constant="WORKER"),
        "__complete": _of("completing", "Offer what could be typed next", hidden=True),
        "config": _of("verbs.config", "Modify kubeconfig files"),
        "plugin": _of("verbs.plugin", "Provides utilities for interacting with plugins"),
        "help": _of("help", "Help about any command", hidden=True),
        "options": _of("help", "Print the list of flags inherited by all commands", hidden=True, constant="OPTIONS"),
        "version": _of("verbs.version", "Print the client and server version information"),
    },
}

ROOT = Command(
    "A complete Kubernetes-compatible control plane.",
    children={name: command for group in GROUPS.values() for name, command in group.items()},
    usage="[command] [flags]",
)

HOST_ONLY = frozenset(
    (
        *("up", "down", "list", "watch", "demo", "lesson", "backup", "store", "reset", "token", "member", "kubeconfig"),
        *("snapshot", "plan", "twin", "record", "replay", "page", "class"),
        *("apiserver", "controller-manager", "scheduler", "node"),
        *("port-forward", "proxy", "config", "plugin", "completion"),
    )
)
"""Commands that use the machine they run on, and are refused where they must not (`CommandIO.on_host`)."""

SEQUENTIAL: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("create", "expose", "set", "explain", "edit", "delete", "autoscale", "rollout", "scale"), ()),
    **dict.fromkeys(("certificate", "cluster-info", "top", "cordon", "uncordon", "taint", "diff", "apply"), ()),
    **dict.fromkeys(("patch", "replace", "kustomize", "wait", "auth", "describe", "label", "annotate"), ()),
    **dict.fromkeys(("api-resources", "api-versions", "config", "version", "__complete"), ()),
    **dict.fromkeys(("status", "list", "loops", "history", "mark", "undo"), ()),
    "get": ("watch", "watch_only"),
    "events": ("watch",),
    "logs": ("follow",),
    "run": ("attach", "stdin", "tty", "rm"),
    "why": ("otlp",),
}
"""Commands that do one thing at a time, and so need no event loop, except with one of these flags. They start no tasks
and use no upgraded connections; they may watch and wait, one stream at a time (`cli.main`)."""
