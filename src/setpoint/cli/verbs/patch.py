"""`patch`: change fields by a patch, on the server or in a file."""

from __future__ import annotations

from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.files import reason
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES, Target, choose, local_targets
from setpoint.cli.writing import DRY_RUN, OUTPUT, RECORD, DryRun, Results, dry_run, field_manager, recorded, subresource
from setpoint.client.client import PATCHES
from setpoint.client.resources import BY_KIND
from setpoint.meta.body import BodyError, parse_json, parse_yaml
from setpoint.meta.errors import UnsupportedMediaType
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj
from setpoint.meta.patch import (
    PatchError,
    apply_json_patch,
    apply_merge_patch,
    apply_strategic,
    decode_json_patch,
    merge_patch_between,
)

_TYPES = ("json", "merge", "strategic")


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    dry = dry_run(invocation)
    results = Results(invocation, dry, apart=True)
    if flags.patch and flags.patch_file:
        raise Failed("cannot specify --patch and --patch-file together")
    if not flags.patch and not flags.patch_file:
        raise Failed("must specify --patch or --patch-file containing the contents of the patch")
    if flags.local and invocation.args:
        raise Failed("cannot specify --local and server resources")
    if flags.local and dry is DryRun.SERVER:
        raise Failed("cannot specify --local and --dry-run=server - did you mean --dry-run=client?")
    kind = flags.type.lower() or "strategic"
    if kind not in _TYPES:
        raise Failed(f"--type must be one of [{' '.join(_TYPES)}], not {quote(flags.type)}")
    patch = _patch(invocation)
    if flags.local:
        targets = list(local_targets(invocation))
    else:
        targets = (await choose(invocation)).targets
    errors: list[Exception] = []
    for target in targets:
        try:
            if target.obj is None:
                target = target.with_object(await _current(invocation, target))
            assert target.obj is not None
            if flags.local or dry is DryRun.CLIENT:
                found = _locally(target, target.obj, patch, kind)
            else:
                found = await _patched(invocation, target, patch, kind, dry)
            results.add(found, "patched" if found != target.obj else "patched (no change)")
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)
    if not targets:
        raise Failed("no objects passed to patch")


def _patch(invocation: Invocation) -> Any:
    """Return the patch to send: JSON is unchanged, anything else is parsed as YAML."""
    data = invocation.flags.patch.encode("utf-8", "surrogateescape")
    if invocation.flags.patch_file:
        name = invocation.flags.patch_file
        try:
            data = invocation.io.files.read(name)
        except OSError as error:
            raise Failed(f"unable to read patch file: open {name}: {reason(error)}") from None
    if data.lstrip().startswith(b"{"):
        return data
    try:
        return parse_yaml(data)[0]
    except BodyError as error:
        raise Failed(f"unable to parse {quote(invocation.flags.patch)}: {error}") from None


async def _current(invocation: Invocation, target: Target) -> Obj:
    return await invocation.client.get(
        target.resource, target.name, target.namespace, subresource=invocation.flags.subresource
    )


async def _patched(invocation: Invocation, target: Target, patch: Any, kind: str, dry: DryRun) -> Obj:
    async def send(change: Any, kind: str) -> Obj:
        return await invocation.client.patch(
            target.resource,
            target.name,
            change,
            target.namespace,
            kind=kind,
            subresource=invocation.flags.subresource,
            dry_run=dry is DryRun.SERVER,
            field_manager=invocation.flags.field_manager,
        )

    try:
        found = await send(patch, kind)
    except UnsupportedMediaType as error:
        of = target.resource
        what = f"{of.group}/{of.version}, Kind={of.kind}"
        raise Failed(f"{PATCHES[kind]} is not supported by {what}: {error.message}") from None
    cause = merge_patch_between(found, recorded(invocation, found))
    return await send(cause, "merge") if cause else found


def _locally(target: Target, obj: Obj, patch: Any, kind: str) -> Obj:
    if isinstance(patch, bytes):
        try:
            patch = parse_json(patch)[0]
        except BodyError as error:
            raise Failed(str(error)) from None
    try:
        if kind == "json":
            found: Obj = apply_json_patch(obj, decode_json_patch(patch))
        elif kind == "merge":
            found = apply_merge_patch(obj, patch)
        else:
            known = BY_KIND.get((target.resource.api_version, target.resource.kind))
            if known is None:
                of = target.resource
                what = f"{of.group}/{of.version}, Kind={of.kind}"
                raise Failed(f"strategic merge patch is not supported for {what} locally, try --type merge")
            found = apply_strategic(known.type, obj, patch)
    except PatchError as error:
        raise Failed(error.message) from None
    return found


COMMAND = Command(
    "Update fields of a resource",
    run,
    (
        *FILES,
        *OUTPUT,
        *DRY_RUN,
        *RECORD,
        *field_manager("kubectl-patch"),
        *subresource("Patch this part of the object."),
        text("patch", "p", help="The patch to be applied to the resource JSON file."),
        text("patch-file", help="A file containing a patch to be applied to the resource."),
        text("type", default="strategic", help="The type of patch being provided.", choices=_TYPES),
        switch("local", help="Patch what the file says, and not what the server has."),
    ),
    usage="(-f FILENAME | TYPE NAME) [-p PATCH|--patch-file FILE] [flags]",
    about="""
    Update fields of a resource using strategic merge patch, a JSON merge patch, or a JSON patch. Patches may be written
    in JSON or YAML. Custom resources know no strategic merge patches.
    """,
    examples="""
    # By a strategic merge patch
    setpoint patch node worker-1 -p '{"spec":{"unschedulable":true}}'

    # One container among others, which are told apart by their names
    setpoint patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"nginx:2"}]}}}}'

    # By a JSON patch
    setpoint patch pod web --type=json -p '[{"op": "replace", "path": "/spec/containers/0/image", "value": "nginx:2"}]'

    # Through a subresource
    setpoint patch deployment web --subresource=scale --type=merge -p '{"spec":{"replicas":2}}'
    """,
)
