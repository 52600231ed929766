"""The operations and parameters of each path, derived from the served resources, for both OpenAPI dialects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from setpoint.kinds.catalog import Resource, Subresource

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
_JSON_PATCH, _MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
_STRATEGIC, _APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
_ANY_TYPE = ("*/*",)
# A delete of these kinds returns the object, of others a Status.
_DELETE_RETURNS_OBJECT = frozenset(
    {
        ("", "PersistentVolumeClaim"),
        ("", "Pod"),
        ("", "PodTemplate"),
        ("", "ResourceQuota"),
        ("", "ServiceAccount"),
        ("", "Service"),
        ("", "PersistentVolume"),
        ("resource.k8s.io", "DeviceClass"),
        ("resource.k8s.io", "ResourceClaim"),
        ("resource.k8s.io", "ResourceClaimTemplate"),
        ("resource.k8s.io", "ResourceSlice"),
        ("storage.k8s.io", "CSIDriver"),
        ("storage.k8s.io", "CSINode"),
        ("storage.k8s.io", "StorageClass"),
        ("storage.k8s.io", "VolumeAttachment"),
        ("storage.k8s.io", "VolumeAttributesClass"),
    }
)
_CONNECT_METHODS = {
    "get": ("get",),
    "create": ("post",),
    "update": ("put",),
    "patch": ("patch",),
    "delete": ("delete", "options", "head"),  # a subresource with DELETE accepts every method
}
_METHOD_ORDER = ("get", "put", "post", "delete", "options", "head", "patch")


class Parameter(NamedTuple):
    """A parameter of an operation."""

    name: str
    place: str
    """`query` or `path`; path parameters are required."""
    type: str
    description: str


def _query(text: str) -> dict[str, Parameter]:
    found = {}
    for line in text.strip().splitlines():
        name, type_, description = line.split(maxsplit=2)
        found[name] = Parameter(name, "query", type_, description)
    return found


_PRETTY = Parameter("pretty", "query", "string", "Indent the answer for people to read, if true.")
NAMESPACE = Parameter("namespace", "path", "string", "The namespace of the object.")
_PATH_REST = Parameter("path", "path", "string", "The path of the proxied request.")

_LIST = _query("""
allowWatchBookmarks boolean Send BOOKMARK events now and then, so that a watch can resume from a recent version.
continue string The token that a limited list gave, to get its next page.
fieldSelector string Only objects whose fields match. All of them if not given.
labelSelector string Only objects whose labels match. All of them if not given.
limit integer At most so many objects in one answer, which then has a token for the rest.
resourceVersion string Which version of the collection to read; what that means depends on resourceVersionMatch.
resourceVersionMatch string How resourceVersion is meant: NotOlderThan or Exact.
sendInitialEvents boolean Begin a watch with ADDED events for what exists, then a BOOKMARK.
shardSelector string Only objects of one shard of the collection.
timeoutSeconds integer End the call after so many seconds, whatever happens.
watch boolean Stream changes instead of answering with a list.
""")
_WRITE = _query("""
dryRun string All: go through every step but keep nothing.
fieldManager string The name under which the fields that change are owned. At most 128 printable characters.
fieldValidation string What to do about unknown and duplicate fields: Ignore, Warn (default) or Strict.
""")
_DELETE = _query("""
dryRun string All: go through every step but keep nothing.
gracePeriodSeconds integer How long the object may take to end; 0 means at once.
ignoreStoreReadErrorWithClusterBreakingPotential boolean Delete the object even if it cannot be read. Dangerous.
orphanDependents boolean Old form of propagationPolicy. Do not set both.
propagationPolicy string What becomes of dependents: Orphan, Background or Foreground.
""")
_PATCH = _query("""
fieldManager string The name under which the fields that change are owned. Apply patches must give one.
force boolean Take fields over from other managers. Apply patches only.
""")

LIST = tuple(_LIST.values())
WRITE = tuple(_WRITE.values())
DELETE = tuple(_DELETE.values())
_DELETE_COLLECTION_PARAMETERS = tuple(
    {**{k: v for k, v in _LIST.items() if k not in ("allowWatchBookmarks", "watch")}, **_DELETE}.values()
)
PATCH = tuple({**_WRITE, **_PATCH}.values())

# Parameters of subresources that connect or stream, by the kind of their options.
OPTIONS: dict[str, tuple[Parameter, ...]] = {
    "PodAttachOptions": tuple(
        _query("""
container string The container to attach to; the only one if there is one.
stderr boolean Send what the container writes to its standard error. On by default.
stdin boolean Read from the client into the standard input of the container. Off by default.
stdout boolean Send what the container writes to its standard output. On by default.
tty boolean Give the session a terminal. Off by default.
""").values()
    ),
    "PodExecOptions": tuple(
        _query("""
command string The command and its arguments, one by one; no shell is involved.
container string The container to run in; the only one if there is one.
stderr boolean Send what the command writes to its standard error.
stdin boolean Read from the client into the standard input of the command. Off by default.
stdout boolean Send what the command writes to its standard output.
tty boolean Give the command a terminal. Off by default.
""").values()
    ),
    "PodPortForwardOptions": tuple(_query("ports integer The ports to forward, when WebSockets are used.").values()),
    "PodProxyOptions": tuple(_query("path string The path of the request to the Pod.").values()),
    "ServiceProxyOptions": tuple(_query("path string The path of the request to the Service.").values()),
    "NodeProxyOptions": tuple(_query("path string The path of the request to the node.").values()),
}
_LOG = tuple(
    _query("""
container string The container whose log to read; the only one if there is one.
follow boolean Keep sending as the log grows. Off by default.
insecureSkipTLSVerifyBackend boolean Do not check the certificate of the node that has the log.
limitBytes integer Stop after so many bytes.
previous boolean The log of the run before the last restart. Off by default.
sinceSeconds integer Only lines of the last so many seconds.
stream string Which stream: All (default), Stdout or Stderr.
tailLines integer Only so many lines from the end.
timestamps boolean Begin each line with its time. Off by default.
""").values()
)


def name_of(kind: str) -> Parameter:
    return Parameter("name", "path", "string", f"The name of the {kind}.")


@dataclass(slots=True)
class Operation:
    """One method of a path."""

    method: str
    id: str
    tag: str
    description: str
    parameters: tuple[Parameter, ...] = ()
    answers: tuple[tuple[str, str], ...] = ()
    """(code, definition); an empty definition stands for a plain string."""
    produces: tuple[str, ...] = ()
    consumes: tuple[str, ...] = _ANY_TYPE
    body: str = ""
    body_required: bool = True
    action: str = ""
    kind: tuple[str, str, str] = ("", "", "")


class DocumentedResource(NamedTuple):
    """A resource with its definitions."""

    resource: Resource
    definition: str
    list_definition: str
    custom: bool = False
    """Custom resources support neither protobuf nor strategic merge patches, and some of their operations differ."""


DefinitionOf = Callable[[str, str, str], str]


def group_tag(group: str) -> str:
    """`rbacAuthorization` for rbac.authorization.k8s.io."""
    first, *rest = group.removesuffix(".k8s.io").split(".") if group else ["core"]
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]


class ResourceOperations:
    """All operations of one resource."""

    def __init__(self, served: DocumentedResource, definition_of: DefinitionOf) -> None:
        resource = served.resource
        self._served = served
        self._resource = resource
        self._definition_of = definition_of
        self._kind = (resource.group, resource.version, resource.kind)
        root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        self._all = f"{root}/{resource.plural}"
        self._collection = f"{root}{scope}/{resource.plural}"
        self._watch_all = f"{root}/watch/{resource.plural}"
        self._watch_collection = f"{root}/watch{scope}/{resource.plural}"
        tag = group_tag(resource.group)
        self._tag = f"{tag}_{resource.version}"
        self._id = _capital(tag) + _capital(resource.version)
        self._scope = "Namespaced" if resource.namespaced else ""
        self._where = (NAMESPACE, _PRETTY) if resource.namespaced else (_PRETTY,)
        self._types = (JSON, YAML) if served.custom else (JSON, YAML, PROTOBUF)
        streams = tuple(f"{kind};stream=watch" for kind in self._types if kind != YAML)
        self._stream_types = self._types if served.custom else self._types + streams
        self._consumes = self._types if served.custom else _ANY_TYPE
        self._patches = (_JSON_PATCH, _MERGE_PATCH, *(() if served.custom else (_STRATEGIC,)), _APPLY)

    def paths(self) -> Iterator[tuple[str, list[Operation]]]:
        yield self._collection, self._on_collection()
        verbs = self._resource.verbs
        if self._resource.namespaced and "list" in verbs:
            yield self._all, [self._list(f"{self._resource.kind}ForAllNamespaces", all_namespaces=True)]
        if self._resource.is_stored:
            yield f"{self._collection}/{{name}}", self._on_object()
        for part in self._resource.subresources:
            yield from self._on_subresource(part)
        if "watch" in verbs and not self._served.custom:
            yield from self._watches()

    # -- paths --------------------------------------------------------------------------------------------------------

    def _on_collection(self) -> list[Operation]:
        resource, kind = self._resource, self._resource.kind
        found = []
        if "list" in resource.verbs:
            found.append(self._list(f"{self._scope}{kind}"))
        if "create" in resource.verbs:
            found.append(
                self._create(
                    f"{self._scope}{kind}", f"Create {_with_article(kind)}.", self._kind, self._served.definition
                )
            )
        if "deletecollection" in resource.verbs:
            custom = self._served.custom
            found.append(
                Operation(
                    "delete",
                    f"delete{self._id}Collection{self._scope}{kind}",
                    self._tag,
                    f"Delete every {kind} that is selected.",
                    (*(LIST if custom else _DELETE_COLLECTION_PARAMETERS), *self._where),
                    (("200", f"{_META}Status"),),
                    self._types,
                    self._consumes,
                    body="" if custom else f"{_META}DeleteOptions",
                    body_required=False,
                    action="deletecollection",
                    kind=self._kind,
                )
            )
        return found

    def _on_object(self) -> list[Operation]:
        resource, kind = self._resource, self._resource.kind
        named = f"{self._scope}{kind}"
        found = [self._read(named, f"Read {_with_article(kind)}.", self._kind, self._served.definition)]
        if "update" in resource.verbs:
            found.append(self._replace(named, f"Replace {_with_article(kind)}.", self._kind, self._served.definition))
        if "delete" in resource.verbs:
            answer = self._served.definition if (resource.group, kind) in _DELETE_RETURNS_OBJECT else f"{_META}Status"
            found.append(
                Operation(
                    "delete",
                    f"delete{self._id}{named}",
                    self._tag,
                    f"Delete {_with_article(kind)}.",
                    (*DELETE, name_of(kind), *self._where),
                    (("200", answer), ("202", answer)),
                    self._types,
                    self._consumes,
                    body=f"{_META}DeleteOptions",
                    body_required=False,
                    action="delete",
                    kind=self._kind,
                )
            )
        if "patch" in resource.verbs:
            found.append(
                self._patch(named, f"Change parts of {_with_article(kind)}.", self._kind, self._served.definition)
            )
        return found

    def _on_subresource(self, part: Subresource) -> Iterator[tuple[str, list[Operation]]]:
        resource = self._resource
        path = f"{self._collection}/{{name}}/{part.name}"
        if part.kind.endswith("Options"):
            yield path, self._connect(part, "")
            if part.name == "proxy":
                yield f"{path}/{{path}}", self._connect(part, "WithPath")
            return
        named = f"{self._scope}{resource.kind}{_capital(part.name)}"
        what = f"the {part.name} of {_with_article(resource.kind)}"
        kind = (part.group or resource.group, part.version or resource.version, part.kind or resource.kind)
        definition = self._definition_of(*kind) if kind != self._kind else self._served.definition
        if self._served.custom:
            kind = self._kind
        if part.name == "log":
            yield path, [self._log(named, what)]
            return
        found = []
        if "get" in part.verbs:
            found.append(self._read(named, f"Read {what}.", kind, definition))
        if "update" in part.verbs:
            found.append(self._replace(named, f"Replace {what}.", kind, definition))
        if "create" in part.verbs:
            found.append(self._create(named, f"Create {what}.", kind, definition, name_of(kind[2])))
        if "patch" in part.verbs:
            found.append(self._patch(named, f"Change parts of {what}.", kind, definition))
        yield path, found

    def _watches(self) -> Iterator[tuple[str, list[Operation]]]:
        kind = self._resource.kind
        if self._resource.namespaced:
            name = f"{kind}ListForAllNamespaces"
            yield self._watch_all, [self._watch(name, "watchlist", f"Watch every {kind}.", (_PRETTY,))]
        name = f"{self._scope}{kind}List"
        yield self._watch_collection, [self._watch(name, "watchlist", f"Watch every {kind} here.", self._where)]
        where = (name_of(kind), *self._where)
        name = f"{self._scope}{kind}"
        yield f"{self._watch_collection}/{{name}}", [self._watch(name, "watch", f"Watch one {kind}.", where)]

    # -- verbs --------------------------------------------------------------------------------------------------------

    def _list(self, named: str, all_namespaces: bool = False) -> Operation:
        kind = self._resource.kind
        verb = "List or watch" if "watch" in self._resource.verbs else "List"
        return Operation(
            "get",
            f"list{self._id}{named}",
            self._tag,
            f"{verb} {kind} objects.",
            (*LIST, *((_PRETTY,) if all_namespaces else self._where)),
            (("200", self._served.list_definition),),
            self._stream_types,
            self._consumes,
            action="list",
            kind=self._kind,
        )

    def _watch(self, named: str, action: str, description: str, where: tuple[Parameter, ...]) -> Operation:
        return Operation(
            "get",
            f"watch{self._id}{named}",
            self._tag,
            f"{description} Old form of a list with watch=true.",
            (*LIST, *where),
            (("200", f"{_META}WatchEvent"),),
            self._stream_types,
            self._consumes,
            action=action,
            kind=self._kind,
        )

    def _read(self, named: str, description: str, kind: tuple[str, str, str], definition: str) -> Operation:
        where = (name_of(kind[2]), *self._where)
        version = tuple(p for p in LIST if p.name == "resourceVersion") if self._served.custom else ()
        return Operation(
            "get",
            f"read{self._id}{named}",
            self._tag,
            description,
            (*version, *where),
            (("200", definition),),
            self._types,
            self._consumes,
            action="get",
            kind=kind,
        )

    def _create(
        self, named: str, description: str, kind: tuple[str, str, str], definition: str, *where: Parameter
    ) -> Operation:
        return Operation(
            "post",
            f"create{self._id}{named}",
            self._tag,
            description,
            (*WRITE, *where, *self._where),
            (("200", definition), ("201", definition), ("202", definition)),
            self._types,
            self._consumes,
            body=definition,
            action="post",
            kind=kind,
        )

    def _replace(self, named: str, description: str, kind: tuple[str, str, str], definition: str) -> Operation:
        return Operation(
            "put",
            f"replace{self._id}{named}",
            self._tag,
            description,
            (*WRITE, name_of(kind[2]), *self._where),
            (("200", definition), ("201", definition)),
            self._types,
            self._consumes,
            body=definition,
            action="put",
            kind=kind,
        )

    def _patch(self, named: str, description: str, kind: tuple[str, str, str], definition: str) -> Operation:
        created = () if self._served.custom else (("201", definition),)
        return Operation(
            "patch",
            f"patch{self._id}{named}",
            self._tag,
            description,
            (*PATCH, name_of(kind[2]), *self._where),
            (("200", definition), *created),
            self._types,
            self._patches,
            body=f"{_META}Patch",
            action="patch",
            kind=kind,
        )

    def _log(self, named: str, what: str) -> Operation:
        return Operation(
            "get",
            f"read{self._id}{named}",
            self._tag,
            f"Read {what}.",
            (*_LOG, name_of(self._resource.kind), *self._where),
            (("200", ""),),
            ("text/plain", *self._types),
            action="get",
            kind=self._kind,
        )

    def _connect(self, part: Subresource, suffix: str) -> list[Operation]:
        resource = self._resource
        where = (NAMESPACE,) if resource.namespaced else ()
        rest = (_PATH_REST,) if suffix else ()
        methods = [method for verb in part.verbs for method in _CONNECT_METHODS[verb]]
        return [
            Operation(
                method,
                f"connect{self._id}{_capital(method)}{self._scope}{resource.kind}{_capital(part.name)}{suffix}",
                self._tag,
                f"Connect to the {part.name} of {_with_article(resource.kind)} with {method.upper()}.",
                (*OPTIONS[part.kind], name_of(part.kind), *where, *rest),
                (("200", ""),),
                _ANY_TYPE,
                action="connect",
                kind=(resource.group, resource.version, part.kind),
            )
            for method in sorted(methods, key=_METHOD_ORDER.index)
        ]


def _with_article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "AEIOU" else f"a {kind}"
