"""Resolve arguments to targets, with kubectl's rules and messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources.manifests import Document, files_given, read_files
from setpoint.cli.resources.target import Obj, Selection, Target
from setpoint.client import Resource
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.goformat import quote
from setpoint.meta.selectors import SelectorError, parse_labels

SELECTORS = (
    text("selector", "l", help="Selector (label query) to filter on, supports '=', '==', '!=', 'in', 'notin'."),
    text("field-selector", help="Selector (field query) to filter on, supports '=', '==', and '!='."),
)
ALL_NAMESPACES = (
    switch("all-namespaces", "A", help="If present, list the requested object(s) across all namespaces."),
)
_SLASHES = (
    "there is no need to specify a resource type as a separate argument when passing arguments in resource/name form "
    "(e.g. 'setpoint get resource/<resource_name>' instead of 'setpoint get resource resource/<resource_name>'"
)


class Chosen(NamedTuple):
    targets: list[Target]
    selections: list[Selection]
    single: bool
    """Whether one object was requested, not a list that happens to contain one."""

    @property
    def all(self) -> list[Target | Selection]:
        return [*self.targets, *self.selections]


async def choose(
    call: Invocation,
    args: Sequence[str] | None = None,
    *,
    lists: bool = False,
    everything: bool = False,
    validate: bool = False,
) -> Chosen:
    """Resolve the arguments and the flags FILES, SELECTORS, ALL_NAMESPACES and `--all`, as far as the command has them.

    With `lists`, a kind alone means all its objects, as in `get`; with `everything`, only together with `--all`.
    """
    args = call.args if args is None else list(args)
    flags = call.flags
    labels: str = getattr(flags, "selector", "")
    fields: str = getattr(flags, "field_selector", "")
    namespace = "" if getattr(flags, "all_namespaces", False) else call.namespace
    if hasattr(flags, "filename") and files_given(call):
        return await _by_files(call, args, labels, validate)
    if everything and (labels or fields):
        raise Failed("setting 'all' parameter but found a non empty selector. ")
    pairs = _pairs(args)
    if pairs is not None:
        if labels or fields or everything:
            raise Failed("selectors and the all flag cannot be used when passing resource/name arguments")
        found = [_named(await find_kind(call, kind), name, namespace) for kind, name in pairs]
        return Chosen(found, [], len(found) == 1)
    if not args:
        if labels or fields:
            raise Failed("at least one resource must be specified to use a selector")
        raise Failed(_NOTHING)
    kinds = [kind for word in args[0].split(",") if word for kind in await expand(call, word)]
    names = list(args[1:])
    if labels or fields or everything or (lists and not names):
        if names:
            raise Failed("name cannot be provided when a selector is specified")
        return Chosen(
            [], [Selection(kind, namespace if kind.namespaced else "", labels, fields) for kind in kinds], False
        )
    if not names:
        raise Failed("resource(s) were provided, but no name was specified")
    if len(kinds) > 1:
        raise Failed("you must specify only one resource")
    return Chosen([_named(kinds[0], name, namespace) for name in names], [], len(names) == 1)


_NOTHING = """you must specify one or more resources, by argument or in files:
   '-f rsrc.yaml'
   '--filename=rsrc.json'
   '<resource> <name>'
   '<resource>'"""


async def fetch(call: Invocation, chosen: Chosen, errors: list[Exception] | None = None) -> list[Target]:
    """Read all chosen objects from the server. Failures are appended to `errors`; without that list the first one is
    raised."""
    found: list[Target] = []
    for target in chosen.targets:
        try:
            obj = await call.client.get(target.resource, target.name, target.namespace)
        except ApiError as error:
            if errors is None:
                raise
            errors.append(error)
            continue
        found.append(target.with_object(obj))
    for selection in chosen.selections:
        try:
            found += await listed(call, selection)
        except ApiError as error:
            if errors is None:
                raise
            errors.append(error)
    return found


async def listed(call: Invocation, selection: Selection, page_size: int = 500) -> list[Target]:
    page = await call.client.list(
        selection.resource,
        selection.namespace,
        label_selector=selection.label_selector,
        field_selector=selection.field_selector,
        page_size=page_size,
    )
    return [
        Target(selection.resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"], obj)
        for obj in page.items
    ]


async def find_kind(call: Invocation, word: str) -> Resource:
    """Find a kind by the name that users type. Raise Failed, with similar names."""
    try:
        return await call.client.discovery.search(word)
    except NotFound:
        known = await call.client.discovery.resources()
        raise Failed(_no_kind(word) + _meant(word, known)) from None


async def expand(call: Invocation, word: str) -> list[Resource]:
    """Return one kind, or all kinds of a category such as `all`."""
    by_name: dict[str, Resource] = {}
    for resource in await call.client.discovery.resources():
        if word in resource.categories:
            by_name.setdefault(str(resource), resource)
    return list(by_name.values()) or [await find_kind(call, word)]


def _no_kind(word: str) -> str:
    name, _, group = word.partition(".")
    return f"the server doesn't have a resource type {quote(name)}" + (f" in group {quote(group)}" if group else "")


def _meant(word: str, known: Iterable[Resource]) -> str:
    # Imported here because it is only needed after an error.
    from difflib import get_close_matches

    names = {name: one.plural for one in known for name in (one.plural, one.singular_name, *one.short)}
    near = get_close_matches(word.lower(), names, 1, 0.7)
    return f"; did you mean {quote(names[near[0]])}?" if near else ""


async def _by_files(call: Invocation, args: Sequence[str], labels: str, validate: bool) -> Chosen:
    if args:
        slashes = any("/" in word for word in args)
        raise Failed(
            "resource/name arguments cannot be provided when a path is specified"
            if slashes
            else "when paths, URLs, or stdin is provided as input, you may not specify resource arguments as well"
        )
    errors: list[Exception] = []
    targets = [one async for one in from_files(call, errors, labels=labels, validate=validate)]
    raise_all(errors)
    files = call.flags.filename
    single = len(files) == 1 and files[0] != "-" and len(targets) == 1
    return Chosen(targets, [], single)


async def from_files(
    call: Invocation, errors: list[Exception], *, labels: str = "", validate: bool = False
) -> AsyncIterator[Target]:
    """Yield the objects of files as they are read. Failures are appended to `errors`; objects after an invalid one are
    missing."""
    try:
        matches = parse_labels(labels).matches if labels else None
    except SelectorError as error:
        raise Failed(f"the provided selector {quote(labels)} is not valid: {error}") from None
    documents = read_files(call, validate=validate)
    while True:
        try:
            document = next(documents, None)
            if document is None:
                return
            if matches is not None and not matches((document.obj.get("metadata") or {}).get("labels") or {}):
                continue
            target = await placed(call, document)
        except Failed as error:
            errors.append(error)
        else:
            yield target


async def placed(call: Invocation, document: Document) -> Target:
    """Return the object of a file with its resource and namespace.

    Raise Failed for a kind that the server does not have, and for a namespace other than the requested one.
    """
    obj, source = document
    version, kind = str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")
    meta = obj.get("metadata") or {}
    name, namespace = str(meta.get("name") or ""), str(meta.get("namespace") or "")
    try:
        resource = await call.client.discovery.find((version, kind))
    except NotFound as error:
        raise Failed(
            f"resource mapping not found for name: {quote(name)} namespace: {quote(namespace)} from {quote(source)}: "
            f"{error.message}\nensure CRDs are installed first"
        ) from None
    if not resource.namespaced:
        namespace = ""
    elif not namespace:
        namespace = call.namespace
        obj = with_namespace(obj, namespace)
    elif call.namespace_given and namespace != call.namespace:
        raise Failed(
            f"the namespace from the provided object {quote(namespace)} does not match the namespace "
            f"{quote(call.namespace)}. You must pass '--namespace={namespace}' to perform this operation."
        )
    return Target(resource, namespace, name, obj, source)


def with_namespace(obj: Obj, namespace: str) -> Obj:
    return {**obj, "metadata": {**(obj.get("metadata") or {}), "namespace": namespace}}


def _named(kind: Resource, name: str, namespace: str) -> Target:
    if kind.namespaced and not namespace:
        raise Failed("a resource cannot be retrieved by name across all namespaces")
    return Target(kind, namespace if kind.namespaced else "", name)


def _pairs(args: Sequence[str]) -> list[tuple[str, str]] | None:
    """Parse `kind/name` words, or several kinds with the same names; None if the words have another form."""
    if len(args) > 1 and "," in args[0] and "/" not in args[0]:
        kinds = [kind for kind in args[0].split(",") if kind]
        if len(kinds) > 1:
            args = [f"{kind}/{name}" for kind in kinds for name in args[1:]]
    with_slash = [word for word in args if "/" in word]
    if not with_slash:
        return None
    if len(with_slash) != len(args):
        raise Failed(_SLASHES)
    pairs = []
    for word in args:
        kind, _, name = word.partition("/")
        if "/" in name:
            raise Failed("arguments in resource/name form may not have more than one slash")
        if not kind or not name or "," in kind:
            raise Failed("arguments in resource/name form must have a single resource and name")
        pairs.append((kind, name))
    return pairs
