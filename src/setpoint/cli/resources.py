"""Resolve the objects of a command from `pods a b`, `deploy/x svc/y`, `-f file`, `-l app=web` or `--all`.

Callers may rely on these guarantees: named objects are in the order of the command line, and those of files in the
order of their documents; a cluster-scoped object has no namespace, and a namespaced one always has one; the arguments
are checked before any request.
"""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from setpoint.cli.failures import Failed, raise_all
from setpoint.cli.files import CommandFiles, is_directory, reason
from setpoint.cli.flags import switch, text, texts
from setpoint.cli.invocation import Invocation
from setpoint.client.resources import BY_KIND, path_of
from setpoint.kinds.catalog import Resource
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj

__all__ = [
    "ALL_NAMESPACES",
    "FILES",
    "SELECTORS",
    "Chosen",
    "Document",
    "Selection",
    "Target",
    "choose",
    "fetch",
    "from_files",
    "read_files",
]


FILES = (
    texts("filename", "f", help="Filename, directory, or URL to files identifying the resource"),
    switch("recursive", "R", help="Process the directory used in -f, --filename recursively."),
    text("kustomize", "k", help="Process a kustomization directory."),
)
_EXTENSIONS = (".json", ".yaml", ".yml")
STDIN = "STDIN"
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
_NOTHING = """you must specify one or more resources, by argument or in files:
   '-f rsrc.yaml'
   '--filename=rsrc.json'
   '<resource> <name>'
   '<resource>'"""


class Document(NamedTuple):
    obj: dict[str, Any]
    source: str


def files_given(invocation: Invocation) -> bool:
    return bool(invocation.flags.filename or _kustomization(invocation))


def _kustomization(invocation: Invocation) -> str:
    """Return the directory of `-k`; empty for commands without that flag."""
    found: str = getattr(invocation.flags, "kustomize", "")
    return found


def read_files(invocation: Invocation, *, validate: bool = False) -> Iterator[Document]:
    """Yield the objects of the flags FILES, including items of lists. Raise Failed.

    With `validate`, an object must have apiVersion and kind before anything else is checked.
    """
    if directory := _kustomization(invocation):
        if invocation.flags.filename:
            raise Failed("only one of -f or -k can be specified")
        if invocation.flags.recursive:
            raise Failed("the -k flag can't be used with -f or -R")
        # Imported here because it is rarely needed.
        from setpoint.cli.kustomize import build

        for obj in build(directory, invocation.io.files, warn=invocation.print_err):
            yield Document(obj, directory)
        return
    for source, data in _contents(invocation):
        yield from documents(data, source, validate=validate)


def documents(data: bytes, source: str, *, validate: bool = False) -> Iterator[Document]:
    for found in values(data, source):
        if not isinstance(found, dict):
            raise Failed(f"error parsing {source}: an object is a mapping, not {type(found).__name__}")
        if validate and (unsaid := [f"{key} not set" for key in ("apiVersion", "kind") if not found.get(key)]):
            problem = unsaid[0] if len(unsaid) == 1 else f"[{', '.join(unsaid)}]"
            raise Failed(
                f"error validating {quote(source)}: error validating data: {problem}; if you choose to ignore these "
                "errors, turn validation off with --validate=false"
            )
        yield from _opened(found, source)


def values(data: bytes, source: str) -> Iterator[Any]:
    """Yield the documents of a text; empty ones are skipped."""
    # Imported here because only commands with files parse documents.
    from setpoint.meta import manifests
    from setpoint.meta.body import BodyError

    try:
        yield from manifests.values(data)
    except BodyError as error:
        raise Failed(f"error parsing {source}: {error}") from None


def _opened(obj: dict[str, Any], source: str) -> Iterator[Document]:
    if not obj.get("kind"):
        import json

        raise Failed(
            f"unable to decode {quote(source)}: Object 'Kind' is missing in '{json.dumps(obj, separators=(',', ':'))}'"
        )
    if not (str(obj["kind"]).endswith("List") and isinstance(obj.get("items"), list)):
        yield Document(obj, source)
        return
    kind, version = str(obj["kind"]).removesuffix("List"), obj.get("apiVersion")
    for item in obj["items"]:
        if not isinstance(item, dict):
            raise Failed(f"unable to decode {quote(source)}: an item of the list is not an object")
        if kind and not item.get("kind"):
            item = {"apiVersion": version, "kind": kind, **item}
        yield from _opened(item, source)


def _contents(invocation: Invocation) -> Iterator[tuple[str, bytes]]:
    for name in invocation.flags.filename:
        if name == "-":
            yield STDIN, invocation.io.stdin.read()
        elif name.startswith(("http://", "https://")):
            raise Failed(
                f"{name}: files are not fetched from the network; fetch it yourself and say `-f -` or its path"
            )
        else:
            files = invocation.io.files
            for path in _paths(files, name, getattr(invocation.flags, "recursive", False)):
                try:
                    yield path, files.read(path)
                except OSError as error:
                    raise Failed(f"open {path}: {reason(error)}") from None


def _paths(files: CommandFiles, name: str, recursive: bool) -> list[str]:
    found = [name] if files.status(name, follow=False) is not None else files.match(name)
    if not found:
        raise Failed(f"the path {quote(name)} does not exist")
    paths: list[str] = []
    for path in found:
        paths += sorted(_inside(files, path, recursive)) if is_directory(files, path) else [path]
    if not paths:
        raise Failed(f"error reading [{name}]: recognized file extensions are [{' '.join(_EXTENSIONS)}]")
    return paths


def _inside(files: CommandFiles, directory: str, recursive: bool) -> Iterator[str]:
    for name in files.entries(directory):
        path = posixpath.join(directory, name)
        if is_directory(files, path):
            if recursive:
                yield from _inside(files, path, True)
        elif name.endswith(_EXTENSIONS):
            yield path


class Target(NamedTuple):
    resource: Resource
    namespace: str
    """The namespace; empty for cluster-scoped objects."""
    name: str
    """The name; empty for an object of a file with only a generateName."""
    obj: Obj | None = None
    """The object as it was read from a file or the server; None if it was not read."""
    source: str = ""
    """The file of the object, or `STDIN`; empty for an object of the server."""

    @property
    def shown(self) -> str:
        """The name in success lines: `deployment.apps/web`."""
        return f"{shown_kind(self.resource)}/{self.name}"

    @property
    def path(self) -> str:
        return path_of(self.resource, self.namespace, self.name)

    def with_object(self, obj: Obj) -> Target:
        return self._replace(obj=obj, name=(obj.get("metadata") or {}).get("name") or self.name)


class Selection(NamedTuple):
    resource: Resource
    namespace: str
    """The namespace; empty means all namespaces."""
    label_selector: str = ""
    field_selector: str = ""

    @property
    def path(self) -> str:
        return path_of(self.resource, self.namespace)


def shown_kind(resource: Resource) -> str:
    """Return `deployment.apps`, or `pod` for the core group."""
    name = resource.kind.lower()
    return f"{name}.{resource.group}" if resource.group else name


class Chosen(NamedTuple):
    targets: list[Target]
    selections: list[Selection]
    single: bool
    """Whether one object was requested, not a list that happens to contain one."""

    @property
    def all(self) -> list[Target | Selection]:
        return [*self.targets, *self.selections]


async def choose(
    invocation: Invocation,
    args: Sequence[str] | None = None,
    *,
    lists: bool = False,
    everything: bool = False,
    validate: bool = False,
) -> Chosen:
    """Resolve the arguments and the flags FILES, SELECTORS, ALL_NAMESPACES and `--all`, as far as the command has them.

    With `lists`, a kind alone means all its objects, as in `get`; with `everything`, only together with `--all`.
    """
    args = invocation.args if args is None else list(args)
    flags = invocation.flags
    labels: str = getattr(flags, "selector", "")
    fields: str = getattr(flags, "field_selector", "")
    namespace = "" if getattr(flags, "all_namespaces", False) else invocation.namespace
    if hasattr(flags, "filename") and files_given(invocation):
        return await _by_files(invocation, args, labels, validate)
    if everything and (labels or fields):
        raise Failed("setting 'all' parameter but found a non empty selector. ")
    pairs = _pairs(args)
    if pairs is not None:
        if labels or fields or everything:
            raise Failed("selectors and the all flag cannot be used when passing resource/name arguments")
        found = [_named(await find_kind(invocation, kind), name, namespace) for kind, name in pairs]
        return Chosen(found, [], len(found) == 1)
    if not args:
        if labels or fields:
            raise Failed("at least one resource must be specified to use a selector")
        raise Failed(_NOTHING if hasattr(flags, "filename") else "name an object: KIND/NAME, or KIND NAME")
    kinds = [kind for word in args[0].split(",") if word for kind in await expand(invocation, word)]
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


async def fetch(invocation: Invocation, chosen: Chosen, errors: list[Exception] | None = None) -> list[Target]:
    """Read all chosen objects from the server. Failures are appended to `errors`; without that list the first one is
    raised."""
    found: list[Target] = []
    for target in chosen.targets:
        try:
            obj = await invocation.client.get(target.resource, target.name, target.namespace)
        except ApiError as error:
            if errors is None:
                raise
            errors.append(error)
            continue
        found.append(target.with_object(obj))
    for selection in chosen.selections:
        try:
            found += await listed(invocation, selection)
        except ApiError as error:
            if errors is None:
                raise
            errors.append(error)
    return found


async def listed(invocation: Invocation, selection: Selection, page_size: int = 500) -> list[Target]:
    page = await invocation.client.list(
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


async def find_kind(invocation: Invocation, word: str) -> Resource:
    """Find a kind by the name that users type. Raise Failed, with similar names."""
    try:
        return await invocation.client.discovery.search(word)
    except NotFound:
        known = await invocation.client.discovery.resources()
        raise Failed(_no_kind(word) + _meant(word, known)) from None


async def expand(invocation: Invocation, word: str) -> list[Resource]:
    """Return one kind, or all kinds of a category such as `all`."""
    by_name: dict[str, Resource] = {}
    for resource in await invocation.client.discovery.resources():
        if word in resource.categories:
            by_name.setdefault(str(resource), resource)
    return list(by_name.values()) or [await find_kind(invocation, word)]


def _no_kind(word: str) -> str:
    name, _, group = word.partition(".")
    return f"the server doesn't have a resource type {quote(name)}" + (f" in group {quote(group)}" if group else "")


def _meant(word: str, known: Iterable[Resource]) -> str:
    # Imported here because it is only needed after an error.
    from difflib import get_close_matches

    names = {name: one.plural for one in known for name in (one.plural, one.singular_name, *one.short)}
    matches = get_close_matches(word.lower(), names, 1, 0.7)
    return f"; did you mean {quote(names[matches[0]])}?" if matches else ""


async def _by_files(invocation: Invocation, args: Sequence[str], labels: str, validate: bool) -> Chosen:
    if args:
        slashes = any("/" in word for word in args)
        raise Failed(
            "resource/name arguments cannot be provided when a path is specified"
            if slashes
            else "when paths, URLs, or stdin is provided as input, you may not specify resource arguments as well"
        )
    errors: list[Exception] = []
    targets = [one async for one in from_files(invocation, errors, labels=labels, validate=validate)]
    raise_all(errors)
    files = invocation.flags.filename
    single = len(files) == 1 and files[0] != "-" and len(targets) == 1
    return Chosen(targets, [], single)


def _matcher(labels: str) -> Callable[[Mapping[str, str]], bool]:
    from setpoint.meta.selectors import SelectorError, parse_labels  # few command lines have files and a selector

    try:
        return parse_labels(labels).matches
    except SelectorError as error:
        raise Failed(f"the provided selector {quote(labels)} is not valid: {error}") from None


async def from_files(
    invocation: Invocation, errors: list[Exception], *, labels: str = "", validate: bool = False
) -> AsyncIterator[Target]:
    """Yield the objects of files as they are read. Failures are appended to `errors`; objects after an invalid one are
    missing."""
    matches = _matcher(labels) if labels else None
    documents = read_files(invocation, validate=validate)
    while True:
        try:
            document = next(documents, None)
            if document is None:
                return
            if matches is not None and not matches((document.obj.get("metadata") or {}).get("labels") or {}):
                continue
            target = await placed(invocation, document)
        except Failed as error:
            errors.append(error)
        else:
            yield target


async def placed(invocation: Invocation, document: Document) -> Target:
    """Return the object of a file with its resource and namespace.

    Raise Failed for a kind that the server does not have, and for a namespace other than the requested one.
    """
    obj, source = document
    version, kind = str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")
    meta = obj.get("metadata") or {}
    name, namespace = str(meta.get("name") or ""), str(meta.get("namespace") or "")
    try:
        resource = await invocation.client.discovery.find((version, kind))
    except NotFound as error:
        raise Failed(
            f"resource mapping not found for name: {quote(name)} namespace: {quote(namespace)} from {quote(source)}: "
            f"{error.message}\nensure CRDs are installed first"
        ) from None
    if not resource.namespaced:
        namespace = ""
    elif not namespace:
        namespace = invocation.namespace
        obj = with_namespace(obj, namespace)
    elif invocation.namespace_given and namespace != invocation.namespace:
        raise Failed(
            f"the namespace from the provided object {quote(namespace)} does not match the namespace "
            f"{quote(invocation.namespace)}. You must pass '--namespace={namespace}' to perform this operation."
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


def local_targets(invocation: Invocation) -> Iterator[Target]:
    """Yield the objects of files unchanged. The plurals of kinds that are not built in are guessed."""
    for obj, source in read_files(invocation):
        version, kind = str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")
        group, _, bare = version.rpartition("/")
        resource = BY_KIND.get((version, kind)) or Resource(group, bare, kind, f"{kind.lower()}s")
        meta = obj.get("metadata") or {}
        yield Target(resource, str(meta.get("namespace") or ""), str(meta.get("name") or ""), obj, source)
