"""Edit objects in the user's editor: `edit`, `create --edit`, `apply edit-last-applied`.

No input is lost: what cannot be saved is opened again with the reasons, or stays in a file whose name is printed.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from setpoint.cli.failures import EXPECTED, Exit, Failed, raise_all
from setpoint.cli.invocation import Invocation
from setpoint.cli.printing.documents import without_managed_fields
from setpoint.cli.resources import Document, Target, choose, documents, fetch, from_files, placed
from setpoint.cli.writing import Results, recorded, validation
from setpoint.cli.writing.annotation import ANNOTATION, annotated, encoded, original
from setpoint.client.resources import BY_KIND
from setpoint.meta.body import BodyError, dump_yaml, parse_yaml
from setpoint.meta.errors import ApiError, Invalid, NotFound
from setpoint.meta.goformat import quote
from setpoint.meta.gojson import compact, indented
from setpoint.meta.objects import Obj
from setpoint.meta.patch import PatchError, merge_patch_between, two_way_strategic

__all__ = ["edit_before_create", "edit_last_applied", "edit_objects"]


_VARIABLES = ("KUBE_EDITOR", "EDITOR")
_DEFAULT = "vi"


async def edit_text(invocation: Invocation, data: bytes, suffix: str) -> tuple[bytes, str]:
    """Return the edited text and the path of its file, which the caller removes. Raise Failed."""
    files, editor = invocation.io.files, invocation.io.editor
    path = files.temporary("setpoint-edit-", suffix, data)
    command, shown = _command(invocation, path) if editor is None else ([], "of the page")
    invocation.flush()
    try:
        succeeded = await editor(path) if editor is not None else _run(invocation, command)
    except FileNotFoundError:
        files.remove(path)
        raise Failed(f"unable to launch the editor {quote(shown)}") from None
    if not succeeded:
        if files.read(path) == data:
            files.remove(path)
        raise Failed(f"there was a problem with the editor {quote(shown)}")
    return files.read(path), path


def _run(invocation: Invocation, command: list[str]) -> bool:
    """Run an editor on the user's terminal, and return whether it succeeded. Raise FileNotFoundError."""
    import subprocess  # the page has an editor of its own

    def own(stream: BinaryIO) -> int:
        try:
            return stream.fileno()
        except (OSError, ValueError):  # an in-memory stream of a test
            return subprocess.DEVNULL

    io = invocation.io
    done = subprocess.run(
        command,
        stdin=own(io.stdin),
        stdout=own(io.stdout),
        stderr=own(io.stderr),
        env=dict(io.environment),
        check=False,
    )
    return done.returncode == 0


def _command(invocation: Invocation, path: str) -> tuple[list[str], str]:
    """Return the command to run, and its name for error messages."""
    environment = invocation.io.environment
    editor = next((found for name in _VARIABLES if (found := environment.get(name))), _DEFAULT)
    if any(char in editor for char in "\"'\\"):
        shell = environment.get("SHELL") or "/bin/bash"
        return [shell, "-c", f"{editor} {quote(path)}"], f"{shell} -c {editor}"
    return [*editor.split(" "), path], editor


OBJECTS = """\
# Please edit the object below. Lines beginning with a '#' will be ignored,
# and an empty file will abort the edit. If an error occurs while saving this file will be
# reopened with the relevant failures.
#
"""
ANNOTATIONS = """\
# Please edit the 'last-applied-configuration' annotations below.
# Lines beginning with a '#' will be ignored, and an empty file will abort the edit.
#
"""


@dataclass
class Outcome:
    """The result of one attempt to save."""

    reasons: list[tuple[str, list[str]]] = field(default_factory=list)
    """The errors of the edited text by object; it is edited again if there are any."""
    retryable: int = 0
    missing: int = 0

    def add(self, error: ApiError, target: Target) -> str:
        """Add the error of one object and return the message to print."""
        what = f"{target.resource} {quote(target.name)}"
        if isinstance(error, Invalid) and error.reason == "Invalid":
            causes = (error.details or {}).get("causes") or ()
            given = [f"{one.get('field', '')}: {one.get('message', '')}" for one in causes]
            self.reasons.append((f"{what} was not valid", given))
            return f"error: {what} is invalid"
        if isinstance(error, NotFound):
            self.missing += 1
            return f"error: {what} could not be found on the server"
        self.retryable += 1
        return f"error: {what} could not be patched: {error.message}"


Save = Callable[[list[Target], Outcome], Awaitable[None]]
"""Saves the edited objects; errors that the user can correct go into the outcome, others are raised."""


class Editing:
    def __init__(self, invocation: Invocation, header: str) -> None:
        self._invocation = invocation
        self._header = header
        self._json = invocation.flags.output == "json"
        self._file = ""
        """The path of the file with the last edited text; empty before the first edit."""

    async def edit(self, targets: list[Target], save: Save) -> None:
        """Edit until saving succeeds or the user gives up. Raise Failed or Exit."""
        original = self._text(targets)
        text, outcome, edited = original, Outcome(), b""
        while True:
            shown = (b"" if self._json else self._headed(outcome)) + text
            before = edited
            edited = await self._edited(shown)
            again = bool(outcome.reasons)
            if again and _stripped(before) == _stripped(edited):
                raise self._with_copy_reported(Failed("Edit cancelled, no valid changes were saved."))
            if _stripped(original) == _stripped(edited):
                self._forget()
                self._invocation.print_err("Edit cancelled, no changes made.")
                return
            if not _has_lines(edited):
                self._forget()
                self._invocation.print_err("Edit cancelled, saved file was empty.")
                return
            text, outcome = _without_comments(edited), Outcome()
            try:
                found = await self._read(edited)
            except EXPECTED as error:
                outcome.reasons.append((f"The edited file had a syntax error: {error}", []))
                continue
            try:
                await save(found, outcome)
            except EXPECTED as error:
                raise self._with_copy_reported(error) from None
            if self._settled(outcome):
                return

    def _settled(self, outcome: Outcome) -> bool:
        if outcome.retryable:
            self._invocation.print_err(f"You can run `setpoint replace -f {self._file}` to try this update again.")
            raise Exit(1)
        if outcome.missing:
            self._invocation.print_err(
                f"The edits you made on deleted resources have been saved to {quote(self._file)}"
            )
            raise Exit(1)
        if outcome.reasons:
            return False
        self._forget()
        return True

    def _text(self, targets: list[Target]) -> bytes:
        objects = [without_managed_fields(target.obj or {}) for target in targets]
        obj = objects[0]
        if len(objects) > 1:
            obj = {"apiVersion": "v1", "items": objects, "kind": "List", "metadata": {}}
        return (indented(obj) + "\n").encode() if self._json else dump_yaml(obj)

    def _headed(self, outcome: Outcome) -> bytes:
        lines = [self._header]
        for head, others in outcome.reasons:
            lines.append(f"# {_hashed(head)}{':' if others else ''}\n")
            lines += [f"# * {_hashed(one)}\n" for one in others]
            lines.append("#\n")
        return "".join(lines).encode()

    async def _edited(self, data: bytes) -> bytes:
        if self._invocation.flags.windows_line_endings:
            data = data.replace(b"\n", b"\r\n")
        before = self._file
        try:
            edited, self._file = await edit_text(self._invocation, data, ".json" if self._json else ".yaml")
        except Failed as error:
            raise self._with_copy_reported(error) from None
        if before:
            self._invocation.io.files.remove(before)
        return edited

    async def _read(self, data: bytes) -> list[Target]:
        return [await placed(self._invocation, document) for document in documents(data, "edited-file")]

    def _forget(self) -> None:
        if self._file:
            self._invocation.io.files.remove(self._file)
            self._file = ""

    def _with_copy_reported(self, error: Exception) -> Exception:
        if self._file and self._invocation.io.files.status(self._file) is not None:
            self._invocation.print_err(f"A copy of your changes has been stored to {quote(self._file)}")
        return error


def _without_comments(data: bytes) -> bytes:
    return b"".join(line for line in data.splitlines(True) if not line.lstrip().startswith(b"#"))


def _stripped(data: bytes) -> Any:
    """Return the parsed content if it is valid: equal contents are not a change."""
    try:
        return parse_yaml(data)[0]
    except BodyError:
        return _without_comments(data)


def _has_lines(data: bytes) -> bool:
    return any((bare := line.strip()) and not bare.startswith(b"#") for line in data.splitlines())


def _hashed(text: str) -> str:
    """Return the text as comment lines."""
    return text.replace("\n#", "\n").replace("\n", "\n# ")


async def edit_objects(invocation: Invocation) -> None:
    """Edit objects of the server and send the changes as patches."""
    results, directive = Results(invocation, apart=True), validation(invocation)
    targets = await _current(invocation)
    if not targets:
        raise Failed("edit cancelled, no objects found")

    async def save(edited: list[Target], outcome: Outcome) -> None:
        for one in edited:
            before = _same(targets, one).obj or {}
            after = _with_managed_fields(one.obj or {}, before)
            if getattr(invocation.flags, "save_config", False):
                after = annotated(after)
            after = recorded(invocation, after)
            if after == before:
                results.add(after, "skipped")
                continue
            patch, kind = _patch(one, before, after)
            if invocation.flags.output_patch:
                invocation.print(f"Patch: {compact(patch)}")
            try:
                found = await invocation.client.patch(
                    one.resource,
                    one.name,
                    patch,
                    one.namespace,
                    kind=kind,
                    subresource=invocation.flags.subresource,
                    field_manager=invocation.flags.field_manager,
                    field_validation=directive,
                )
            except ApiError as error:
                invocation.print_err(outcome.add(error, one))
            else:
                results.add(found, "edited")

    await Editing(invocation, OBJECTS).edit(targets, save)


async def edit_before_create(invocation: Invocation) -> None:
    """Edit objects of files one after another and create them."""
    results, directive = Results(invocation, apart=True), validation(invocation)
    errors: list[Exception] = []

    async def save(edited: list[Target], _: Outcome) -> None:
        for one in edited:
            obj = one.obj or {}
            if invocation.flags.save_config:
                obj = annotated(obj)
            found = await invocation.client.create(
                recorded(invocation, obj),
                resource=one.resource,
                namespace=one.namespace,
                field_manager="kubectl-create",
                field_validation=directive,
            )
            results.add(found, "created")

    async for target in from_files(invocation, errors):
        await Editing(invocation, OBJECTS).edit([target], save)
    raise_all(errors)


async def edit_last_applied(invocation: Invocation) -> None:
    """Edit the last-applied annotations of objects."""
    results = Results(invocation, apart=True)
    targets = [
        (await placed(invocation, Document(json.loads(text), "STDIN")))
        for target in await _current(invocation)
        if (text := original(target.obj or {})) is not None
    ]
    if not targets:
        raise Failed(
            "no last-applied-configuration annotation found on resources, to create the annotation, use command "
            "`setpoint apply set-last-applied --create-annotation`"
        )

    async def save(edited: list[Target], _: Outcome) -> None:
        for one in edited:
            obj = one.obj or {}
            if obj == _same(targets, one).obj:
                results.add(obj, "skipped")
                continue
            await invocation.client.patch(
                one.resource,
                one.name,
                {"metadata": {"annotations": {ANNOTATION: encoded(obj)}}},
                one.namespace,
                field_manager=invocation.flags.field_manager,
            )
            results.add(obj, "edited")

    await Editing(invocation, ANNOTATIONS).edit(targets, save)


async def _current(invocation: Invocation) -> list[Target]:
    chosen = await choose(invocation, lists=True)
    part = getattr(invocation.flags, "subresource", "")
    if not part:
        return await fetch(invocation, chosen)
    if chosen.selections:
        raise Failed("subresource cannot be used when bulk resources are specified")
    return [
        one.with_object(await invocation.client.get(one.resource, one.name, one.namespace, subresource=part))
        for one in chosen.targets
    ]


def _same(targets: list[Target], edited: Target) -> Target:
    """Return the original of an edited object, by uid if it has one, because the name may be edited."""

    def uid(target: Target) -> str:
        found: str = ((target.obj or {}).get("metadata") or {}).get("uid") or ""
        return found

    for target in targets:
        if uid(target) == uid(edited) and (uid(target) or target.path == edited.path or len(targets) == 1):
            return target
    raise Failed(f"no original object found for {edited.shown}")


def _with_managed_fields(obj: Obj, before: Obj) -> Obj:
    """Restore the managed fields, which are hidden from the editor."""
    fields = (before.get("metadata") or {}).get("managedFields")
    return obj if fields is None else {**obj, "metadata": {**(obj.get("metadata") or {}), "managedFields": fields}}


def _patch(target: Target, before: Obj, after: Obj) -> tuple[Obj, str]:
    known = BY_KIND.get((before.get("apiVersion") or "", before.get("kind") or ""))
    try:
        patch = two_way_strategic(known.type, before, after) if known else merge_patch_between(before, after)
    except PatchError as error:
        raise Failed(error.message) from None
    if {"apiVersion", "kind"} & patch.keys() or "name" in (patch.get("metadata") or {}):
        raise Failed("At least one of apiVersion, kind and name was changed")
    return patch, "strategic" if known else "merge"
