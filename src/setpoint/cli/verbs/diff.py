"""`diff`: show the changes that apply would make."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from setpoint.cli.command import Command
from setpoint.cli.failures import Exit, Failed, raise_all
from setpoint.cli.flags import array, number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.printing.documents import without_managed_fields
from setpoint.cli.resources import ALL_NAMESPACES, FILES, Target, from_files
from setpoint.cli.writing import field_manager
from setpoint.cli.writing.annotation import original, unannotated
from setpoint.meta.body import dump_yaml
from setpoint.meta.errors import Conflict, NotFound
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

_TRIES = 4
_ARGUMENT = re.compile(r"[a-zA-Z0-9-=]+")
_MASK, _BEFORE, _AFTER = "***", "*** (before)", "*** (after)"


class Text(NamedTuple):
    """The two versions of an object as YAML."""

    live: bytes
    """Empty if there is no object."""
    merged: bytes | None
    """None if the object would be deleted."""


Texts = dict[str, Text]
"""The compared versions by file name."""


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    if getattr(flags, "from") or flags.to:
        if flags.filename or flags.kustomize or not getattr(flags, "from"):
            raise Failed("--from compares two moments of the cluster: it needs no files, and --to needs it")
        from setpoint.cli.past_diff import compare  # another kind of comparison

        await compare(invocation)
        return
    if invocation.args:
        invocation.usage(f"Unexpected args: [{' '.join(invocation.args)}]")
    if not flags.filename and not flags.kustomize:
        raise Failed("must specify one of -f and -k")
    if flags.force_conflicts and not flags.server_side:
        raise Failed("--force-conflicts only works with --server-side")
    kinds = None
    if flags.prune:
        from setpoint.cli.verbs.apply.prune import allowed

        kinds = await allowed(invocation)
    texts: Texts = {}
    visited: list[tuple[Target, Obj | None]] = []
    errors: list[Exception] = []
    async for target in from_files(invocation, errors, labels=flags.selector):
        before, after = await _versions(invocation, target)
        visited.append((target, before))
        name = _file_name(target.resource.api_version, target.resource.kind, target.namespace, target.name)
        texts[name] = _text(invocation, before, after, texts.get(name))
    raise_all(errors)
    if kinds is not None:
        await _pruned(invocation, kinds, visited, texts)
    _compare(invocation, texts)


async def _versions(invocation: Invocation, target: Target) -> tuple[Obj | None, Obj]:
    """Return the current and the merged object. Retry if it changes in between."""
    for attempt in range(1, _TRIES + 1):
        try:
            before: Obj | None = await invocation.client.get(target.resource, target.name, target.namespace)
        except NotFound:
            before = None
        if before is not None and before["metadata"].get("deletionTimestamp"):
            invocation.print_err(
                f"Warning: Detected changes to resource {target.name} which is currently being deleted."
            )
        if attempt == _TRIES:
            kind = f"{target.resource.group}/{target.resource.version}, Kind={target.resource.kind}"
            invocation.print_err(f"Object ({kind}: {target.name}) keeps changing, diffing without lock")
        try:
            return before, await _merged(invocation, target, before, locked=attempt < _TRIES)
        except Conflict:
            if attempt == _TRIES or invocation.flags.server_side:
                raise
    raise AssertionError("the last attempt gives or raises")


async def _merged(invocation: Invocation, target: Target, before: Obj | None, *, locked: bool) -> Obj:
    """Return the merged object by a dry run on the server."""
    flags, client = invocation.flags, invocation.client
    assert target.obj is not None
    manager = flags.field_manager
    if not flags.given("field-manager"):
        manager = "kubectl" if flags.server_side else "kubectl-client-side-apply"
    if flags.server_side:
        return await client.apply(
            target.obj, resource=target.resource, field_manager=manager, force=flags.force_conflicts, dry_run=True
        )
    if before is None:
        return await client.create(
            target.obj, resource=target.resource, namespace=target.namespace, field_manager=manager, dry_run=True
        )
    # Imported here because server-side apply needs no patches.
    from setpoint.cli.verbs.apply.client_side import three_way

    patch, kind = three_way(target, before, unannotated(target.obj))
    if not patch:
        return before
    if locked:
        patch = {**patch, "metadata": {**(patch.get("metadata") or {})}}
        patch["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
    return await client.patch(
        target.resource, target.name, patch, target.namespace, kind=kind, field_manager=manager, dry_run=True
    )


def _text(invocation: Invocation, before: Obj | None, after: Obj, known: Text | None) -> Text:
    live = known.live if known is not None else b""
    if not invocation.flags.show_managed_fields:
        before, after = before and without_managed_fields(before), without_managed_fields(after)
    if (
        not invocation.flags.show_secrets
        and after.get("kind") == "Secret"
        and after.get("apiVersion", "").endswith("v1")
    ):
        if before is None:
            live = b"null\n"  # as in kubectl
        before, after = masked(before, after)
    return Text(live if before is None else dump_yaml(before), dump_yaml(after))


def masked(before: Obj | None, after: Obj) -> tuple[Obj | None, Obj]:
    """Mask the values of Secrets, so that only the fact of a change is shown."""
    old, new = dict((before or {}).get("data") or {}), dict(after.get("data") or {})
    differ = {key for key in old if key in new and old[key] != new[key]}
    old = {key: _BEFORE if key in differ else _MASK for key in old}
    new = {key: _AFTER if key in differ else _MASK for key in new}
    if before is not None and "data" in before:
        before = {**before, "data": old}
    return before, {**after, "data": new} if "data" in after else after


async def _pruned(
    invocation: Invocation, kinds: list[Any], visited: list[tuple[Target, Obj | None]], texts: Texts
) -> None:
    from setpoint.cli.verbs.apply.prune import default_kinds

    uids = {before["metadata"].get("uid") for _, before in visited if before is not None}
    namespaces = sorted({target.namespace for target, _ in visited if target.namespace})
    for kind in kinds or await default_kinds(invocation):
        for namespace in namespaces if kind.namespaced else [""]:
            found = await invocation.client.list(kind, namespace, label_selector=invocation.flags.selector)
            for obj in found.items:
                meta = obj["metadata"]
                if original(obj) is not None and meta.get("uid") not in uids:
                    name = _file_name(kind.api_version, kind.kind, meta.get("namespace", ""), meta["name"])
                    texts[name] = Text(dump_yaml(obj), None)


def _file_name(api_version: str, kind: str, namespace: str, name: str) -> str:
    return f"{api_version.replace('/', '.')}.{kind}.{namespace}.{name}".replace("/", "_")


def _compare(invocation: Invocation, texts: Texts) -> None:
    """Compare with the program of KUBECTL_EXTERNAL_DIFF, with `diff`, or internally."""
    if not invocation.io.on_host:
        _compare_here(invocation, texts, "LIVE", "MERGED")
        return
    import shutil
    import tempfile

    given = invocation.io.environment.get("KUBECTL_EXTERNAL_DIFF", "")
    with tempfile.TemporaryDirectory(prefix="LIVE-") as live, tempfile.TemporaryDirectory(prefix="MERGED-") as merged:
        if not given and shutil.which("diff", path=invocation.io.environment.get("PATH")) is None:
            _compare_here(invocation, texts, live, merged)
            return
        for name, versions in texts.items():
            (Path(live) / name).write_bytes(versions.live)
            if versions.merged is not None:
                (Path(merged) / name).write_bytes(versions.merged)
        program, *rest = given.split(" ") if given else ("diff",)
        options = [word for word in rest if _ARGUMENT.fullmatch(word)]
        _run(invocation, program, [live, merged, *options] if given else ["-u", "-N", live, merged])


def _run(invocation: Invocation, program: str, arguments: list[str]) -> None:
    import subprocess

    invocation.flush()
    try:
        own = invocation.io.stdout.fileno()
    except (OSError, ValueError):  # an in-memory stream of a test
        own = subprocess.PIPE
    try:
        done = subprocess.run(
            [program, *arguments], stdout=own, env=dict(invocation.io.environment), check=False, stderr=None
        )
    except OSError as error:
        raise Failed(f"failed to run {quote(program)}: {error.strerror}") from None
    if done.stdout:
        invocation.write(done.stdout)
    if done.returncode == 1:
        raise Exit(1)
    if done.returncode:
        raise Failed(f"failed to run {quote(program)}: exit status {done.returncode}")


def _compare_here(invocation: Invocation, texts: Texts, live: str, merged: str) -> None:
    from difflib import unified_diff

    differ = False
    for name, versions in sorted(texts.items()):
        old, new = ((data or b"").decode().splitlines(True) for data in versions)
        lines = list(unified_diff(old, new, f"{live}/{name}", f"{merged}/{name}"))
        if lines:
            differ = True
            invocation.print(f"diff -u -N {live}/{name} {merged}/{name}")
            invocation.print("".join(lines), end="")
    if differ:
        raise Exit(1)


COMMAND = Command(
    "Diff the live version against a would-be applied version",
    run,
    (
        *FILES,
        *field_manager("kubectl-client-side-apply"),
        text("selector", "l", help="Selector (label query): of the objects in the files, only those that match."),
        switch("server-side", help="If true, apply runs in the server instead of the client."),
        switch("force-conflicts", help="If true, server-side apply will force the changes against conflicts."),
        switch("prune", help="Include resources that would be deleted by pruning."),
        array("prune-allowlist", help="Overwrite the default allowlist with <group/version/kind> for --prune"),
        switch("show-managed-fields", help="If true, include managed fields in the diff."),
        switch("show-secrets", help="If true, do not mask secret values in the diff."),
        text(
            "from",
            help="Compare the cluster of this moment: a revision, a time, -5m, start, or a mark (see `get --at`).",
        ),
        text("to", help="With --from: with the cluster of this moment; by default now."),
        switch("status", help="With --from: compare the status of objects, too."),
        *ALL_NAMESPACES,
        number("concurrency", default=1, help="Accepted; objects are looked at one after another."),
    ),
    usage="(-f FILENAME | --from MOMENT [--to MOMENT] [TYPE[/NAME] | TYPE NAME]) [flags]",
    about="""
    Diff configurations specified by file name or stdin between the current online configuration, and the configuration
    as it would be if applied. KUBECTL_EXTERNAL_DIFF names another program than `diff`, with its flags. The exit code is
    0 if nothing would change, 1 if something would, and greater than 1 if something went wrong.

    With --from, compare two moments of the cluster instead: one object field by field, several as a list with + for
    created, ~ for changed and - for deleted ones.
    """,
    examples="""
    # What would be changed by a file
    setpoint diff -f web.yaml

    # What would be changed by what another command prints
    cat web.yaml | setpoint diff -f -

    # What has changed in the last ten minutes: in the namespace, and in one object
    setpoint diff --from -10m
    setpoint diff --from -10m deployment/web
    """,
    fails_with=2,
)
