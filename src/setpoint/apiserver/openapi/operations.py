"""What can be asked at each path, derived from the served resources, in a form from which both dialects are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from setpoint.apiserver.openapi.parameters import (
    DELETE,
    DELETE_COLLECTION,
    LIST,
    LOG,
    NAMESPACE,
    OPTIONS,
    PATCH,
    PATH_REST,
    PRETTY,
    WRITE,
    Parameter,
    name_of,
)
from setpoint.kinds.catalog import Resource, Subresource

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
_JSON_PATCH, _MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
_STRATEGIC, _APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
ANY_TYPE = ("*/*",)

# Of these a delete answers with the object itself, of others with a Status.
_DELETE_SAYS_OBJECT = frozenset(
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
    "delete": ("delete", "options", "head"),  # whoever takes a DELETE takes every method
}
_METHOD_ORDER = ("get", "put", "post", "delete", "options", "head", "patch")


@dataclass(slots=True)
class Operation:
    method: str
    id: str
    tag: str
    description: str
    parameters: tuple[Parameter, ...] = ()
    answers: tuple[tuple[str, str], ...] = ()
    """(code, definition); an empty definition is a plain string."""
    produces: tuple[str, ...] = ()
    consumes: tuple[str, ...] = ANY_TYPE
    body: str = ""
    body_required: bool = True
    action: str = ""
    kind: tuple[str, str, str] = ("", "", "")


class Served(NamedTuple):
    """A resource with what a document must know of it beyond the catalog."""

    resource: Resource
    definition: str
    list_definition: str
    custom: bool = False
    """Custom resources speak neither protobuf nor strategic merge patches, and a few of their rows differ."""


DefinitionOf = Callable[[str, str, str], str]


def group_tag(group: str) -> str:
    """`rbacAuthorization` for rbac.authorization.k8s.io."""
    first, *rest = group.removesuffix(".k8s.io").split(".") if group else ["core"]
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]


class ResourceOperations:
    """Everything that can be asked of one resource."""

    def __init__(self, served: Served, definition_of: DefinitionOf) -> None:
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
        self._where = (NAMESPACE, PRETTY) if resource.namespaced else (PRETTY,)
        self._types = (JSON, YAML) if served.custom else (JSON, YAML, PROTOBUF)
        streams = tuple(f"{kind};stream=watch" for kind in self._types if kind != YAML)
        self._stream_types = self._types if served.custom else self._types + streams
        self._takes = self._types if served.custom else ANY_TYPE
        self._patches = (_JSON_PATCH, _MERGE_PATCH, *(() if served.custom else (_STRATEGIC,)), _APPLY)

    def paths(self) -> Iterator[tuple[str, list[Operation]]]:
        yield self._collection, self._on_collection()
        verbs = self._resource.verbs
        if self._resource.namespaced and "list" in verbs:
            yield self._all, [self._list(f"{self._resource.kind}ForAllNamespaces", everywhere=True)]
        if self._resource.is_stored:
            yield f"{self._collection}/{{name}}", self._on_object()
        for part in self._resource.subresources:
            yield from self._on_subresource(part)
        if "watch" in verbs and not self._served.custom:
            yield from self._watches()

    # -- one by one -----------------------------------------------------------------------------------------------

    def _on_collection(self) -> list[Operation]:
        resource, kind = self._resource, self._resource.kind
        found = []
        if "list" in resource.verbs:
            found.append(self._list(f"{self._scope}{kind}"))
        if "create" in resource.verbs:
            found.append(
                self._create(f"{self._scope}{kind}", f"Create {_a(kind)}.", self._kind, self._served.definition)
            )
        if "deletecollection" in resource.verbs:
            custom = self._served.custom
            found.append(
                Operation(
                    "delete",
                    f"delete{self._id}Collection{self._scope}{kind}",
                    self._tag,
                    f"Delete every {kind} that is selected.",
                    (*(LIST if custom else DELETE_COLLECTION), *self._where),
                    (("200", f"{_META}Status"),),
                    self._types,
                    self._takes,
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
        found = [self._read(named, f"Read {_a(kind)}.", self._kind, self._served.definition)]
        if "update" in resource.verbs:
            found.append(self._replace(named, f"Replace {_a(kind)}.", self._kind, self._served.definition))
        if "delete" in resource.verbs:
            answer = self._served.definition if (resource.group, kind) in _DELETE_SAYS_OBJECT else f"{_META}Status"
            found.append(
                Operation(
                    "delete",
                    f"delete{self._id}{named}",
                    self._tag,
                    f"Delete {_a(kind)}.",
                    (*DELETE, name_of(kind), *self._where),
                    (("200", answer), ("202", answer)),
                    self._types,
                    self._takes,
                    body=f"{_META}DeleteOptions",
                    body_required=False,
                    action="delete",
                    kind=self._kind,
                )
            )
        if "patch" in resource.verbs:
            found.append(self._patch(named, f"Change parts of {_a(kind)}.", self._kind, self._served.definition))
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
        what = f"the {part.name} of {_a(resource.kind)}"
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
            yield self._watch_all, [self._watch(name, "watchlist", f"Watch every {kind}.", (PRETTY,))]
        name = f"{self._scope}{kind}List"
        yield self._watch_collection, [self._watch(name, "watchlist", f"Watch every {kind} here.", self._where)]
        where = (name_of(kind), *self._where)
        name = f"{self._scope}{kind}"
        yield f"{self._watch_collection}/{{name}}", [self._watch(name, "watch", f"Watch one {kind}.", where)]

    # -- by verb --------------------------------------------------------------------------------------------------

    def _list(self, named: str, everywhere: bool = False) -> Operation:
        kind = self._resource.kind
        verb = "List or watch" if "watch" in self._resource.verbs else "List"
        return Operation(
            "get",
            f"list{self._id}{named}",
            self._tag,
            f"{verb} {kind} objects.",
            (*LIST, *((PRETTY,) if everywhere else self._where)),
            (("200", self._served.list_definition),),
            self._stream_types,
            self._takes,
            action="list",
            kind=self._kind,
        )

    def _watch(self, named: str, action: str, said: str, where: tuple[Parameter, ...]) -> Operation:
        return Operation(
            "get",
            f"watch{self._id}{named}",
            self._tag,
            f"{said} Old form of a list with watch=true.",
            (*LIST, *where),
            (("200", f"{_META}WatchEvent"),),
            self._stream_types,
            self._takes,
            action=action,
            kind=self._kind,
        )

    def _read(self, named: str, said: str, kind: tuple[str, str, str], definition: str) -> Operation:
        where = (name_of(kind[2]), *self._where)
        version = tuple(p for p in LIST if p.name == "resourceVersion") if self._served.custom else ()
        return Operation(
            "get",
            f"read{self._id}{named}",
            self._tag,
            said,
            (*version, *where),
            (("200", definition),),
            self._types,
            self._takes,
            action="get",
            kind=kind,
        )

    def _create(
        self, named: str, said: str, kind: tuple[str, str, str], definition: str, *where: Parameter
    ) -> Operation:
        return Operation(
            "post",
            f"create{self._id}{named}",
            self._tag,
            said,
            (*WRITE, *where, *self._where),
            (("200", definition), ("201", definition), ("202", definition)),
            self._types,
            self._takes,
            body=definition,
            action="post",
            kind=kind,
        )

    def _replace(self, named: str, said: str, kind: tuple[str, str, str], definition: str) -> Operation:
        return Operation(
            "put",
            f"replace{self._id}{named}",
            self._tag,
            said,
            (*WRITE, name_of(kind[2]), *self._where),
            (("200", definition), ("201", definition)),
            self._types,
            self._takes,
            body=definition,
            action="put",
            kind=kind,
        )

    def _patch(self, named: str, said: str, kind: tuple[str, str, str], definition: str) -> Operation:
        created = () if self._served.custom else (("201", definition),)
        return Operation(
            "patch",
            f"patch{self._id}{named}",
            self._tag,
            said,
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
            (*LOG, name_of(self._resource.kind), *self._where),
            (("200", ""),),
            ("text/plain", *self._types),
            action="get",
            kind=self._kind,
        )

    def _connect(self, part: Subresource, suffix: str) -> list[Operation]:
        resource = self._resource
        where = (NAMESPACE,) if resource.namespaced else ()
        rest = (PATH_REST,) if suffix else ()
        methods = [method for verb in part.verbs for method in _CONNECT_METHODS[verb]]
        return [
            Operation(
                method,
                f"connect{self._id}{_capital(method)}{self._scope}{resource.kind}{_capital(part.name)}{suffix}",
                self._tag,
                f"Connect to the {part.name} of {_a(resource.kind)} with {method.upper()}.",
                (*OPTIONS[part.kind], name_of(part.kind), *where, *rest),
                (("200", ""),),
                ANY_TYPE,
                action="connect",
                kind=(resource.group, resource.version, part.kind),
            )
            for method in sorted(methods, key=_METHOD_ORDER.index)
        ]


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "AEIOU" else f"a {kind}"
