"""The parameters that operations take, by name: where they go, their type, and what they do."""

from __future__ import annotations

from typing import NamedTuple


class Parameter(NamedTuple):
    name: str
    place: str
    """`query` or `path`; those in a path are required."""
    type: str
    description: str


def _query(text: str) -> dict[str, Parameter]:
    found = {}
    for line in text.strip().splitlines():
        name, type_, description = line.split(maxsplit=2)
        found[name] = Parameter(name, "query", type_, description)
    return found


PRETTY = Parameter("pretty", "query", "string", "Indent the answer for people to read, if true.")
NAMESPACE = Parameter("namespace", "path", "string", "The namespace of the object.")
PATH_REST = Parameter("path", "path", "string", "The path of the proxied request.")

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
DELETE_COLLECTION = tuple(
    {**{k: v for k, v in _LIST.items() if k not in ("allowWatchBookmarks", "watch")}, **_DELETE}.values()
)
PATCH = tuple({**_WRITE, **_PATCH}.values())

# Of subresources that connect or stream, by the kind of their options.
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
LOG = tuple(
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
