"""`set image`."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.invocation import Invocation
from setpoint.cli.verbs.set.changing import (
    FLAGS,
    RECORDED,
    SELECTED,
    Obj,
    carry_out,
    check_local,
    items,
    with_containers,
    with_pod_spec,
)  # fmt: skip
from setpoint.cli.writing.pairs import split
from setpoint.meta.goformat import quote


async def run(call: Invocation) -> None:
    resources, given = split(call.args, "image")[:2]
    images = _images(given)
    found = await items(call, resources) if resources or call.flags.filename or call.flags.kustomize else []
    _check(call, resources, images)
    missing: list[Exception] = []

    def change(spec: Obj) -> Obj:
        for name in images:
            names = [one.get("name") for key in ("initContainers", "containers") for one in spec.get(key) or ()]
            if name not in names and not (name == "*" and names):
                missing.append(Failed(f"error: unable to find container named {quote(name)}"))
        return with_containers(spec, lambda one: _with_image(one, images))

    await carry_out(
        call,
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


def _check(call: Invocation, resources: list[str], images: dict[str, str]) -> None:
    flags = call.flags
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
    check_local(call)


COMMAND = Command(
    "Update the image of a pod template",
    run,
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
