"""`debug`: add a debugging container to a Pod, to a copy of it, or to a node."""

from __future__ import annotations

from copy import deepcopy

from setpoint.cli.command import Command
from setpoint.cli.debug_profiles import COPY, EPHEMERAL, NODE, PROFILES, Keep, apply_profile
from setpoint.cli.failures import Failed
from setpoint.cli.files import CommandFiles, reason
from setpoint.cli.flags import switch, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.pod_choice import PODS, container_names
from setpoint.cli.resources import FILES, Target, choose, fetch
from setpoint.cli.verbs.attach import attach_to_pod
from setpoint.cli.verbs.run import is_image
from setpoint.cli.waiting import follow
from setpoint.meta.errors import NotFound
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

_PULLS = ("Always", "IfNotPresent", "Never")
_LEGACY = (
    "--profile=legacy is deprecated and planned to be removed in v1.39. It is recommended to specify other profile, "
    'for example "--profile=general".'
)
_NOT_ROOT = (
    "Warning: Non-root user is configured for the entire target Pod, and some capabilities granted by debug profile "
    'may not work. Please consider using "--custom" with a custom profile that specifies '
    '"securityContext.runAsUser: 0".'
)
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    names = invocation.args
    command: list[str] = []
    if 0 <= invocation.dash < len(invocation.args):
        names, command = invocation.args[: invocation.dash], invocation.args[invocation.dash :]
    debugging = _Debugging(invocation, command)
    debugging.check(names)
    words = [name if "/" in name else f"pods/{name}" for name in names]
    for target in await fetch(invocation, await choose(invocation, words)):
        pod, container = await debugging.made(target)
        if container and (flags.attach if flags.given("attach") else flags.stdin):
            pod = await _running(invocation, pod, container)
            await attach_to_pod(invocation, pod, container)


class _Debugging:
    def __init__(self, invocation: Invocation, command: list[str]) -> None:
        self._invocation = invocation
        self._command = command
        self._env = [{"name": key, "value": value} for key, value in _pairs(invocation.flags.env, "env").items()]
        self._images = _pairs(invocation.flags.set_image, "set-image")
        self._custom = _custom(invocation.io.files, invocation.flags.custom)

    def check(self, names: list[str]) -> None:
        flags = self._invocation.flags
        if flags.profile not in PROFILES:
            raise Failed(f"unknown profile: {flags.profile}")
        if flags.attach and not flags.image and not flags.container:
            raise Failed("you must specify --container or create a new container using --image in order to attach.")
        if flags.copy_to:
            if not (flags.image or self._images or self._command):
                raise Failed("you must specify --image, --set-image or command arguments.")
            if self._command and not (flags.container or flags.image):
                raise Failed("you must specify an existing container or a new image when specifying args.")
        else:
            for flag, given in (
                ("replace", flags.replace),
                ("same-node", flags.same_node),
                ("set-image", self._images),
            ):
                if given:
                    raise Failed(f"--{flag} may only be used with --copy-to.")
            if not flags.image:
                raise Failed("you must specify --image when not using --copy-to.")
        if flags.image and not is_image(flags.image):
            raise Failed(f"invalid image name {quote(flags.image)}: invalid reference format")
        if not names and not flags.filename:
            raise Failed("NAME or filename is required for debug")
        if flags.image_pull_policy not in (*_PULLS, ""):
            raise Failed(f"invalid image pull policy: {flags.image_pull_policy}")
        for name, image in self._images.items():
            if not is_image(image):
                reported = f"{quote(image)} for container {quote(name)}"
                raise Failed(f"invalid image name {reported}: invalid reference format")
        self._check_rest()

    def _check_rest(self) -> None:
        flags = self._invocation.flags
        if flags.target:
            if flags.copy_to:
                raise Failed("--target is incompatible with --copy-to. Use --share-processes instead.")
            if not flags.quiet:
                self._invocation.print(
                    f"Targeting container {quote(flags.target)}. If you don't see processes from this container it may "
                    "be because the container runtime doesn't support this feature."
                )
        if flags.tty and not flags.stdin:
            raise Failed("-i/--stdin is required for containers with -t/--tty=true")
        if any(self._custom.get(key) for key in ("name", "command", "image", "lifecycle", "volumeDevices")):
            raise Failed("name, command, image, lifecycle and volume devices are not modifiable via custom profile")
        if flags.profile == "legacy":
            self._invocation.print_err(_LEGACY)

    async def made(self, target: Target) -> tuple[Obj, str]:
        """Return the Pod with the container, and the container's name; empty if there is none to add."""
        assert target.obj is not None
        kind = (target.resource.group, target.resource.kind)
        if kind == ("", "Node"):
            return await self._on_node(target.obj)
        if kind != ("", "Pod"):
            version = f"{target.resource.group}/{target.resource.version}".lstrip("/")
            raise Failed(f'"{version}, Kind={target.resource.kind}" not supported by debug')
        return await (self._copied(target.obj) if self._invocation.flags.copy_to else self._added(target.obj))

    def _container(self, name: str) -> Obj:
        flags = self._invocation.flags
        made: Obj = {"name": name, "image": flags.image, "terminationMessagePolicy": "File"}
        if self._command:
            made["args" if flags.arguments_only else "command"] = self._command
        return made | self._common()

    def _common(self) -> Obj:
        flags = self._invocation.flags
        typed_value = {
            "env": self._env,
            "imagePullPolicy": flags.image_pull_policy,
            "stdin": flags.stdin,
            "tty": flags.tty,
        }
        return {key: value for key, value in typed_value.items() if value}

    def _profiled(self, pod: Obj, container: Obj, style: str) -> None:
        flags = self._invocation.flags
        keep = Keep(
            flags.keep_labels,
            flags.keep_annotations,
            flags.keep_liveness,
            flags.keep_readiness,
            flags.keep_startup,
            flags.keep_init_containers,
        )
        apply_profile(flags.profile, pod, container, style, keep)
        if self._custom:
            customized = _customized(container, self._custom)
            container.clear()
            container.update(customized)

    async def _added(self, pod: Obj) -> tuple[Obj, str]:
        name = self._name(pod)
        container = self._container(name)
        if self._invocation.flags.target:
            container["targetContainerName"] = self._invocation.flags.target
        self._profiled(deepcopy(pod), container, EPHEMERAL)
        self._warn(container, pod)
        meta = pod["metadata"]
        before = pod["spec"].get("ephemeralContainers") or []
        order = [{"name": one["name"]} for one in (*before, container)]
        patch = {"spec": {"$setElementOrder/ephemeralContainers": order, "ephemeralContainers": [container]}}
        changed = await self._invocation.client.patch(
            PODS, meta["name"], patch, meta["namespace"], kind="strategic", subresource="ephemeralcontainers"
        )
        return changed, name

    async def _copied(self, pod: Obj) -> tuple[Obj, str]:
        flags, meta = self._invocation.flags, pod["metadata"]
        made = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": flags.copy_to,
                "namespace": meta["namespace"],
                **{key: meta[key] for key in ("annotations", "labels") if key in meta},
            },
            "spec": deepcopy(pod["spec"]),
        }
        spec = made["spec"]
        spec.pop("ephemeralContainers", None)
        if flags.given("share-processes"):
            spec["shareProcessNamespace"] = flags.share_processes
        if not flags.same_node:
            spec.pop("nodeName", None)
        for one in spec["containers"]:
            one["image"] = self._images.get(one["name"]) or self._images.get("*") or one["image"]
        name = flags.container
        container = next(
            (c for part in ("containers", "initContainers") for c in spec.get(part) or () if c["name"] == name), None
        )
        if container is None:
            if not flags.image:
                if not self._images:
                    raise Failed("you must specify image when creating new container")
                return await self._create(made, pod), ""
            name = name or self._name(made)
            container = self._container(name)
            spec["containers"].append(container)
        else:
            self._change(container)
        self._profiled(made, container, COPY)
        self._warn(container, made)
        return await self._create(made, pod), name

    def _change(self, container: Obj) -> None:
        if self._command:
            container["args" if self._invocation.flags.arguments_only else "command"] = self._command
            if not self._invocation.flags.arguments_only:
                container.pop("args", None)
        if self._invocation.flags.image:
            container["image"] = self._invocation.flags.image
        container.pop("stdin", None)
        container.pop("tty", None)
        container.update(self._common())

    async def _create(self, made: Obj, original: Obj) -> Obj:
        created = await self._invocation.client.create(made)
        if self._invocation.flags.replace:
            meta = original["metadata"]
            await self._invocation.client.delete(PODS, meta["name"], meta["namespace"], grace_period=0)
        return created

    async def _on_node(self, node: Obj) -> tuple[Obj, str]:
        flags, node_name = self._invocation.flags, node["metadata"]["name"]
        name = flags.container or "debugger"
        pod_name = f"node-debugger-{node_name}-{self._invocation.io.suffix()}"
        if not flags.quiet:
            self._invocation.print(f"Creating debugging pod {pod_name} with container {name} on node {node_name}.")
        container = self._container(name)
        made: Obj = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod_name,
                "namespace": self._invocation.namespace,
                "labels": {"app.kubernetes.io/managed-by": "kubectl-debug"},
            },
            "spec": {
                "containers": [container],
                "nodeName": node_name,
                "restartPolicy": "Never",
                "tolerations": [{"operator": "Exists"}],
            },
        }
        self._profiled(made, container, NODE)
        return await self._invocation.client.create(made), name

    def _name(self, pod: Obj) -> str:
        if self._invocation.flags.container:
            return str(self._invocation.flags.container)
        name = ""
        while not name or name in container_names(pod):
            name = f"debugger-{self._invocation.io.suffix()}"
        if not self._invocation.flags.quiet:
            self._invocation.print(f"Defaulting debug container name to {name}.")
        return name

    def _warn(self, container: Obj, pod: Obj) -> None:
        """Warn if the container does not run as root and cannot use its privileges."""
        rights = container.get("securityContext") or {}
        user = (pod["spec"].get("securityContext") or {}).get("runAsUser")
        more = rights.get("privileged") or (rights.get("capabilities") or {}).get("add")
        if user and more and rights.get("runAsUser") != 0:
            self._invocation.print_err(_NOT_ROOT)


def _pairs(typed_value: list[str], flag: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in typed_value:
        key, equals, value = word.partition("=")
        if not equals:
            raise Failed(f'invalid argument {quote(word)} for "--{flag}" flag: {word} must be formatted as key=value')
        found[key] = value
    return found


def _custom(files: CommandFiles, path: str) -> Obj:
    if not path:
        return {}
    # Imported here because custom profiles are rare.
    from setpoint.meta.body import BodyError, parse_yaml

    try:
        found = parse_yaml(files.read(path))[0]
    except OSError as error:
        raise Failed(f"must pass a container spec json file for custom profile: open {path}: {reason(error)}") from None
    except BodyError as error:
        raise Failed(f"{path} does not contain a valid container spec: {error}") from None
    if not isinstance(found, dict):
        raise Failed(f"{path} does not contain a valid container spec: it is no mapping")
    return found


def _customized(container: Obj, custom: Obj) -> Obj:
    from setpoint.kinds.tables import definition_for, type_of
    from setpoint.meta.patch.errors import PatchError
    from setpoint.meta.patch.strategic import apply_strategic

    def pod(one: Obj) -> Obj:
        return {"spec": {"containers": [one]}}

    try:
        patch = pod({**custom, "name": container["name"]})
        found = apply_strategic(type_of(definition_for("", "v1", "Pod")), pod(container), patch)
    except PatchError as error:
        raise Failed(f"error creating three way patch to add debug container: {error}") from None
    merged: Obj = found["spec"]["containers"][0]
    return merged


async def _running(invocation: Invocation, pod: Obj, container: str) -> Obj:
    """Return the Pod as soon as the container runs or has terminated."""
    reported: set[str] = set()

    def seen(found: Obj | None) -> bool:
        if found is None:
            raise NotFound(f'pods "{pod["metadata"]["name"]}" not found')
        status = found.get("status") or {}
        one: Obj = next((c for part in _STATUSES for c in status.get(part) or () if c["name"] == container), {})
        state = one.get("state") or {}
        if "running" in state or "terminated" in state:
            return True
        waits = (state.get("waiting") or {}).get("message")
        if waits and waits not in reported and not invocation.flags.quiet:
            reported.add(waits)
            invocation.print_err(f"Warning: container {container}: {waits}")
        return False

    meta = pod["metadata"]
    invocation.flush()
    found = await follow(invocation, Target(PODS, meta["namespace"], meta["name"]), seen)
    assert found is not None
    return found


COMMAND = Command(
    "Create debugging sessions for troubleshooting workloads and nodes",
    run,
    (
        *FILES[:1],
        switch("arguments-only", help="What follows -- are the arguments of the image's own command."),
        switch("attach", help="Wait until the container runs, and attach to it; so does -i, unless this is false."),
        text("container", "c", help="Container name to use for debug container."),
        text("copy-to", help="Create a copy of the target Pod with this name."),
        switch("replace", help="When used with '--copy-to', delete the original Pod."),
        texts("env", help="Environment variables to set in the container, name=value."),
        text("image", help="Container image to use for debug container."),
        switch("keep-labels", help="The copy has the labels of the Pod."),
        switch("keep-annotations", help="The copy has the annotations of the Pod."),
        switch("keep-liveness", help="The copy has the liveness probes of the Pod."),
        switch("keep-readiness", help="The copy has the readiness probes of the Pod."),
        switch("keep-startup", help="The copy has the startup probes of the Pod."),
        switch("keep-init-containers", default=True, help="The copy has the init containers of the Pod."),
        texts("set-image", help="With '--copy-to': other images for its containers, name=image; * is all of them."),
        text("image-pull-policy", help=f"When the image is pulled: {', '.join(_PULLS)}.", choices=_PULLS),
        switch("stdin", "i", help="Keep stdin open on the container, even if nothing is attached."),
        switch("tty", "t", help="Allocate a TTY for the debugging container."),
        switch("quiet", "q", help="Suppress informational messages."),
        switch("same-node", help="When used with '--copy-to', schedule the copy on the same node."),
        switch("share-processes", default=True, help="With '--copy-to': its containers see each other's processes."),
        text("target", help="The container whose processes an ephemeral container sees."),
        text("profile", default="general", help=f"What it may do: {', '.join(PROFILES[:-1])}.", choices=PROFILES),
        text("custom", help="File with a part of a container, in JSON or YAML, that goes on top of the profile."),
    ),
    usage="(POD | TYPE[[.VERSION].GROUP]/NAME) [ -- COMMAND [args...] ]",
    about="""
    In a Pod that runs, an ephemeral container is added. With --copy-to, a copy of the Pod is made instead, with other
    images, another command, or one more container. For a node, a Pod is made there that sees the node as it is.
    """,
    examples="""
    # A shell beside the containers of a Pod
    setpoint debug web -it --image=busybox --target=main

    # A copy of the Pod whose container does not crash
    setpoint debug web -it --copy-to=web-debug --container=main -- sh

    # On a node
    setpoint debug node/node-1 -it --image=busybox
    """,
)
