"""`set image`, `set resources` and `set serviceaccount`: change the containers and the account of a Pod template."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.set.changing import (
    FLAGS,
    RECORDED,
    SELECTED,
    carry_out,
    check_all,
    check_local,
    items,
    matches,
    with_containers,
    with_pod_spec,
)
from setpoint.cli.writing.pairs import split
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import QuantityError, canonical


async def set_image(invocation: Invocation) -> None:
    resources, given = split(invocation.args, "image")[:2]
    images = _images(given)
    found = (
        await items(invocation, resources)
        if resources or invocation.flags.filename or invocation.flags.kustomize
        else []
    )
    _check_image(invocation, resources, images)
    missing: list[Exception] = []

    def change(spec: Obj) -> Obj:
        for name in images:
            names = [one.get("name") for key in ("initContainers", "containers") for one in spec.get(key) or ()]
            if name not in names and not (name == "*" and names):
                missing.append(Failed(f"error: unable to find container named {quote(name)}"))
        return with_containers(spec, lambda one: _with_image(one, images))

    await carry_out(
        invocation,
        found,
        lambda obj: with_pod_spec(obj, change),
        "image updated",
        failed="failed to patch image update to pod template: ",
        errors=missing,
    )


def _with_image(container: Obj, images: dict[str, str]) -> Obj:
    image = images.get("*") or images.get(container.get("name") or "")
    return {**container, "image": image} if image else container


def _images(given: list[str]) -> dict[str, str]:
    wrong = [pair for pair in given if "=" not in pair or pair[0] == "="]
    if wrong:
        raise Failed(f"invalid image format: {', '.join(wrong)}")
    return dict(pair.split("=", 1) for pair in given)


def _check_image(invocation: Invocation, resources: list[str], images: dict[str, str]) -> None:
    flags = invocation.flags
    errors = []
    if flags.all and flags.selector:
        errors.append("cannot set --all and --selector at the same time")
    if not (resources or flags.filename or flags.kustomize):
        errors.append("one or more resources must be specified as <resource> <name> or <resource>/<name>")
    if not images:
        errors.append("at least one image update is required")
    elif len(images) > 1 and "*" in images:
        errors.append(
            "all containers are already specified by *, but saw more than one container_name=container_image pairs"
        )
    raise_all([Failed(error) for error in errors])
    check_local(invocation)


IMAGE = Command(
    "Update the image of a pod template",
    set_image,
    (*FLAGS, *SELECTED, *RECORDED),
    usage="(-f FILENAME | TYPE NAME) CONTAINER_NAME_1=CONTAINER_IMAGE_1 ... CONTAINER_NAME_N=CONTAINER_IMAGE_N",
    examples="""
    # Another image for one container
    setpoint set image deployment/web nginx=nginx:1.27

    # For all containers of all deployments
    setpoint set image deployments --all '*=nginx:1.27'

    # In a file
    setpoint set image -f web.yaml nginx=nginx:1.27 --local -o yaml
    """,
)


async def set_resources(invocation: Invocation) -> None:
    found = await items(invocation, invocation.args)
    check_local(invocation)
    check_all(invocation)
    if not (invocation.flags.limits or invocation.flags.requests):
        raise Failed("you must specify an update to requests or limits (in the form of --requests/--limits)")
    wanted = {key: amounts for key in ("limits", "requests") if (amounts := _amounts(getattr(invocation.flags, key)))}
    pattern = invocation.flags.containers
    missing: list[Exception] = []

    def change(spec: Obj) -> Obj:
        names = [one.get("name") or "" for key in ("initContainers", "containers") for one in spec.get(key) or ()]
        if not any(matches(name, pattern) for name in names):
            missing.append(Failed(f"error: unable to find container named {pattern}"))
            return spec
        return with_containers(
            spec, lambda one: _with_resources(one, wanted) if matches(one.get("name") or "", pattern) else one
        )

    await carry_out(
        invocation,
        found,
        lambda obj: with_pod_spec(obj, change),
        "resource requirements updated",
        failed="failed to patch resources update to pod template ",
        errors=missing,
    )


def _with_resources(container: Obj, wanted: dict[str, dict[str, str]]) -> Obj:
    resources = container.get("resources") or {}
    changed = {key: {**(resources.get(key) or {}), **amounts} for key, amounts in wanted.items()}
    return {**container, "resources": {**resources, **changed}}


def _amounts(given: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in given.split(",") if given else ():
        parts = pair.split("=")
        if len(parts) != 2:
            raise Failed(f"invalid argument syntax {pair}, expected <resource>=<value>")
        try:
            found[parts[0]] = canonical(parts[1])
        except QuantityError as error:
            raise Failed(str(error)) from None
    return found


RESOURCES = Command(
    "Update resource requests/limits on objects with pod templates",
    set_resources,
    (
        *FLAGS,
        *SELECTED,
        *RECORDED,
        text("containers", "c", default="*", help="Which containers, by name; * stands for any letters."),
        text("limits", help="What a container may use at most: cpu=100m,memory=256Mi"),
        text("requests", help="What a container asks for: cpu=100m,memory=256Mi"),
    ),
    usage="(-f FILENAME | TYPE NAME)  ([--limits=LIMITS & --requests=REQUESTS]",
    examples="""
    setpoint set resources deployment web --requests=cpu=100m,memory=64Mi --limits=memory=128Mi

    # Only for one container
    setpoint set resources deployment web -c=nginx --limits=cpu=200m
    """,
)


async def set_service_account(invocation: Invocation) -> None:
    check_local(invocation)
    if not invocation.args:
        raise Failed("serviceaccount is required")
    account = invocation.args[-1]
    await carry_out(
        invocation,
        await items(invocation, invocation.args[:-1]),
        lambda obj: with_pod_spec(obj, lambda spec: {**spec, "serviceAccountName": account}),
        "serviceaccount updated",
        failed="failed to patch ServiceAccountName ",
        even_unchanged=True,
    )


SERVICE_ACCOUNT = Command(
    "Update the service account of a resource",
    set_service_account,
    (*FLAGS, *RECORDED),
    usage="(-f FILENAME | TYPE NAME) SERVICE_ACCOUNT",
    aliases=("sa",),
    examples="""
    setpoint set serviceaccount deployment web robot
    """,
)
