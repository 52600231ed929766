"""`run`: run an image in a Pod."""

from __future__ import annotations

import re

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.flags import array, duration, number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES
from setpoint.cli.verbs.create.making import metadata, saved
from setpoint.cli.writing import DRY_RUN, OUTPUT, RECORD, SAVE_CONFIG, DryRun, Results, dry_run, field_manager, recorded
from setpoint.cli.writing.results import overridden, overriding
from setpoint.meta.errors import ApiError
from setpoint.meta.goformat import quote
from setpoint.meta.names import env_var_name
from setpoint.meta.objects import Obj

_RESTARTS = ("Always", "OnFailure", "Never")
_CASCADES = ("background", "foreground", "orphan")
_PULLS = ("Always", "IfNotPresent", "Never")
_LONGEST_IMAGE = 1024
_DOMAIN = (
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])"
)
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_IMAGE = re.compile(rf"(?:{_DOMAIN}(?::[0-9]+)?/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@{_DIGEST})?", re.ASCII)


async def run(invocation: Invocation) -> int | None:
    flags = invocation.flags
    labels = _labels(flags.labels)
    container = _container(invocation)
    if flags.restart not in (*_RESTARTS, ""):
        raise Failed(f"invalid restart policy: {flags.restart}, valid values are: {', '.join(_RESTARTS)}")
    restart = flags.restart or ("OnFailure" if flags.stdin else "Always")
    attach = flags.attach or (flags.stdin and not flags.given("attach"))
    dry = dry_run(invocation)
    results = Results(invocation, dry)
    _check(invocation, attach, dry)
    name = invocation.args[0]
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "creationTimestamp": None,
            "labels": labels or {"run": name},
            **({"annotations": annotations} if (annotations := _annotations(flags.annotations)) else {}),
        },
        "spec": {
            "containers": [{"name": name, **container}],
            "restartPolicy": restart,
            "dnsPolicy": "ClusterFirst",
        },
        "status": {},
    }
    made = [await _made(invocation, overridden(invocation, pod), dry)]
    errors: list[Exception] = []
    if flags.expose:
        try:
            made.append(await _made(invocation, _service(invocation, name, labels), dry))
        except ApiError as error:
            errors.append(error)
    if attach:
        # Imported here because most Pods are not attached to.
        from setpoint.cli.verbs.run_attached import run_attached

        return await run_attached(invocation, made, restart)
    for obj in made:
        results.add(obj, "created", typed=True)
    raise_all(errors)
    return None


def _check(invocation: Invocation, attach: bool, dry: DryRun) -> None:
    flags = invocation.flags
    if flags.cascade not in _CASCADES:
        raise Failed(f'invalid cascade value ({flags.cascade}). Must be "background", "foreground", or "orphan"')
    if not invocation.args or invocation.dash == 0:
        raise Failed("NAME is required for run")
    if not flags.image:
        raise Failed("--image is required")
    if not is_image(flags.image):
        raise Failed(f"invalid image name {quote(flags.image)}: invalid reference format")
    if flags.tty and not flags.stdin:
        raise Failed("-i/--stdin is required for containers with -t/--tty=true")
    if flags.expose and not flags.port:
        raise Failed("--port must be set when exposing a service")
    if flags.port and not re.fullmatch(r"[+-]?[0-9]{1,18}", flags.port):
        raise Failed("--port must be a number")
    if flags.rm and not attach:
        raise Failed("--rm should only be used for attached containers")
    if attach and dry is not DryRun.NONE:
        raise Failed(
            "--dry-run=[server|client] can't be used with attached containers options (--attach, --stdin, or --tty)"
        )


def is_image(name: str) -> bool:
    return len(name) <= _LONGEST_IMAGE and bool(_IMAGE.fullmatch(name))


def _container(invocation: Invocation) -> Obj:
    """Return the container without its name, which is that of the Pod."""
    flags, words = invocation.flags, invocation.args[1:]
    made: Obj = {"image": flags.image}
    if words:
        made["command" if flags.command else "args"] = words
    if re.fullmatch(r"[+-]?[0-9]{1,18}", flags.port):
        made["ports"] = [{"containerPort": int(flags.port)}]
    if flags.env:
        made["env"] = [_variable(one) for one in flags.env]
    made["resources"] = {}
    if flags.image_pull_policy:
        if flags.image_pull_policy not in _PULLS:
            raise Failed(f"invalid image pull policy: {flags.image_pull_policy}, valid values are: {', '.join(_PULLS)}")
        made["imagePullPolicy"] = flags.image_pull_policy
    if flags.privileged:
        made["securityContext"] = {"privileged": True}
    if flags.stdin:
        made["stdin"] = True
        if not flags.leave_stdin_open:
            made["stdinOnce"] = True
    if flags.tty:
        made["tty"] = True
    return made


def _variable(given: str) -> Obj:
    name, equals, value = given.partition("=")
    if not (equals and name) or env_var_name(name):
        raise Failed(f"invalid env: {given}")
    return {"name": name, **({"value": value} if value else {})}


def _labels(given: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in given.split(",") if given else ():
        parts = pair.split("=")
        if len(parts) != 2:
            raise Failed(f"unexpected label spec: {pair}")
        if not parts[0]:
            raise Failed("unexpected empty label key")
        found[parts[0]] = parts[1]
    return dict(sorted(found.items()))


def _annotations(given: list[str]) -> dict[str, str]:
    wrong = [pair for pair in given if "=" not in pair or pair[0] == "="]
    if wrong:
        raise Failed(f"invalid annotations format: {', '.join(wrong)}")
    return dict(sorted(pair.split("=", 1) for pair in given))


def _service(invocation: Invocation, name: str, labels: dict[str, str]) -> Obj:
    port = int(invocation.flags.port)
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": name, "creationTimestamp": None, **({"labels": labels} if labels else {})},
        "spec": {
            "ports": [{"protocol": "TCP", "port": port, "targetPort": port}],
            "selector": labels or {"run": name},
        },
        "status": {"loadBalancer": {}},
    }


async def _made(invocation: Invocation, obj: Obj, dry: DryRun) -> Obj:
    obj = recorded(invocation, obj)
    if dry is DryRun.CLIENT:
        placed = metadata(invocation, obj["metadata"]["name"])
        return {**obj, "metadata": {**placed, **obj["metadata"]}}
    if invocation.flags.save_config:
        obj = saved(obj)
    return await invocation.client.create(
        obj, dry_run=dry is DryRun.SERVER, field_manager=invocation.flags.field_manager
    )


COMMAND = Command(
    "Run a particular image on the cluster",
    run,
    (
        *OUTPUT,
        *RECORD,
        *DRY_RUN,
        *SAVE_CONFIG,
        *field_manager("kubectl-run"),
        *overriding("merge"),
        text("image", help="The image for the container to run.", required=True),
        text("image-pull-policy", help=f"When the image is pulled: {', '.join(_PULLS)}; unset: as the server thinks."),
        array("annotations", help="Annotations to apply to the pod."),
        array("env", help="Environment variables to set in the container."),
        text("port", help="The port that this container exposes."),
        text("labels", "l", help="Comma separated labels to apply to the pod."),
        text("restart", default="Always", help=f"The restart policy for this Pod: {', '.join(_RESTARTS)}."),
        switch("command", help="What follows -- is the command of the container, not the arguments of its own."),
        switch("expose", help="Create a ClusterIP service for the Pod as well; needs --port."),
        switch("privileged", help="Run the container in privileged mode."),
        switch("stdin", "i", help="Keep stdin open on the container, even if nothing is attached."),
        switch("tty", "t", help="Allocate a TTY for the container in the pod."),
        switch("attach", help="Wait until the Pod runs, and attach to it; so does -i, unless this is set to false."),
        switch("rm", help="Delete the Pod when it is over. Only for those that are attached."),
        switch("leave-stdin-open", help="Leave stdin open when the first who is attached leaves."),
        switch("quiet", "q", help="Suppress prompt messages."),
        text("detach-keys", default="ctrl-p,ctrl-q", help="The keys that end an attachment."),
        duration("pod-running-timeout", default=60.0, help="How long to wait until at least one Pod runs."),
        *FILES,
        text("cascade", default="background", help="How what depends on the Pod is deleted.", bare="background"),
        switch("force", help="Delete at once."),
        number("grace-period", default=-1, help="Seconds that the Pod has to end by itself; -1: as it says."),
        duration("timeout", help="How long to wait for a deletion."),
        switch("wait", help="Wait until what is deleted is gone."),
    ),
    usage='NAME --image=image [--env="key=value"] [--port=port] [--dry-run=server|client] [--overrides=inline-json] '
    "[--command] -- [COMMAND] [args...]",
    examples="""
    # A Pod
    setpoint run web --image=nginx --port=80 --labels=app=web

    # Its manifest
    setpoint run web --image=nginx --dry-run=client -o yaml

    # A shell that is gone when it is left
    setpoint run -it --rm shell --image=busybox --restart=Never -- sh
    """,
)
