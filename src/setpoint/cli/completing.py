"""Shell completion: commands, flags, kinds, objects, namespaces, contexts, containers.

The hidden command `__complete` answers the shell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from setpoint.cli import connection
from setpoint.cli.catalog import ROOT
from setpoint.cli.command import Command, loaded
from setpoint.cli.failures import EXPECTED
from setpoint.cli.flags import Flag, Flags, UsageProblem
from setpoint.cli.invocation import CommandIO, Invocation
from setpoint.cli.main import HELP
from setpoint.cli.verbs.plugin import completing_plugin

NO_SPACE, NO_FILES, DEFAULT = 2, 4, 0
"""Completion directives for the shell: no space after the word, no file names, default behaviour."""
_REQUEST_TIMEOUT = "3s"
_MAX = 2000

_KINDS_THEN_NAMES = (
    "get",
    "describe",
    "delete",
    "edit",
    "label",
    "annotate",
    "patch",
    "scale",
    "autoscale",
    "expose",
    "wait",
    "events",
    "why",
    "history",
    "taint",
    "set image",
    "set env",
    "set resources",
    "set selector",
    "set serviceaccount",
    "set subject",
    "rollout status",
    "rollout history",
    "rollout undo",
    "rollout pause",
    "rollout resume",
    "rollout restart",
    "apply view-last-applied",
    "apply edit-last-applied",
)
_PODS = ("logs", "exec", "attach", "port-forward", "debug", "cp")
_NAMES_OF = {
    "drain": "nodes",
    "cordon": "nodes",
    "uncordon": "nodes",
    "top node": "nodes",
    "top pod": "pods",
    "nodes stop": "nodes",
    "nodes start": "nodes",
    "nodes partition": "nodes",
    "nodes remove": "nodes",
    "certificate approve": "certificatesigningrequests",
    "certificate deny": "certificatesigningrequests",
}
"""Commands whose arguments are names of objects of one kind."""
_FILES = ("backup", "restore", "store check", "store copy", "kustomize", "create configmap", "create secret generic")
"""Commands whose arguments are or can be files."""
_FILE_FLAGS = (
    "filename",
    "kubeconfig",
    "kustomize",
    "www",
    "unix-socket",
    "custom",
    "certificate-authority",
    "client-certificate",
    "client-key",
    "from-file",
    "from-env-file",
    "cert",
    "key",
    "fleet",
    "into",
    "kuberc",
    "kubelet-client-certificate",
    "kubelet-client-key",
    "kubelet-certificate-authority",
)
_FILE_ENDINGS = ("-file", "-dir", "-config", "-path")
_CONTEXTS = (
    "config use-context",
    "config delete-context",
    "config rename-context",
    "config set-context",
    "config get-contexts",
)
_SECTIONS = {"config delete-cluster": "clusters", "config delete-user": "users"}
_KINDS = ("explain",)
_LOGGED = ("deployments", "daemonsets", "statefulsets", "jobs", "replicasets", "services")


class Offers(NamedTuple):
    words: list[str]
    """The candidates, each with an optional tab and description."""
    directive: int = NO_FILES


async def offers(words: list[str], io: CommandIO) -> Offers:
    """Return the candidates for the last of the words, which may be empty. Errors result in no candidates."""
    *before, last = words or [""]
    command, rest, path = _found(before)
    flags = Flags((*command.flags, *_shared(command), *HELP))
    if "--" not in rest:
        name, equals, value = last.partition("=")
        if equals and name.startswith("--"):
            flag = next((one for one in flags.all if f"--{one.name}" == name), None)
            return (
                await _values(flag, value, rest, flags, io, command.local) if flag is not None else Offers([], DEFAULT)
            )
        if rest and (flag := _wanting(flags, rest[-1])) is not None:
            return await _values(flag, last, rest[:-1], flags, io, command.local)
        if last.startswith("-"):
            return _flag_names(flags, last)
    children = _children(command, last)
    # Connection flags may precede the name of a subcommand, although its parent does not have them.
    with_server = Flags((*connection.FLAGS, *command.flags, *HELP))
    if command.children and with_server.first_argument(rest) < 0:
        if command is ROOT and not children and io.on_host:
            return Offers(_plugins(last, io))
        return Offers([*children, *(_taught(path, [], last) if path == "lesson" else ())])
    return await _arguments(path, last, rest, flags, io, command.local)


def _children(command: Command, last: str) -> list[str]:
    return [
        f"{name}\t{one.summary}" for name, one in command.children.items() if name.startswith(last) and not one.hidden
    ]


def _found(words: list[str]) -> tuple[Command, list[str], str]:
    command, path, rest = ROOT, list[str](), list(words)
    while command.children:
        at = Flags((*connection.FLAGS, *command.flags, *HELP)).first_argument(rest)
        child = command.child(rest[at]) if at >= 0 else None
        if child is None:
            break
        path.append(command.name_of(rest.pop(at)))
        command = loaded(child)
    return command, rest, " ".join(path)


def _shared(command: Command) -> Iterable[Flag]:
    own = {flag.name for flag in command.flags}
    return [flag for flag in connection.FLAGS if flag.name not in own] if command.connects else []


def _wanting(flags: Flags, word: str) -> Flag | None:
    """Return the flag that the word is, if the next word is its value; otherwise None."""
    for flag in flags.all:
        if flag.bare is None and (word == f"--{flag.name}" or (flag.short and word == f"-{flag.short}")):
            return flag
    return None


def _flag_names(flags: Flags, last: str) -> Offers:
    found = []
    for flag in sorted(flags.all):
        if flag.hidden or flag.deprecated:
            continue
        if f"--{flag.name}".startswith(last):
            mark = "" if flag.bare is not None else "="
            found.append(f"--{flag.name}{mark}\t{flag.help}")
        if flag.short and last in ("-", f"-{flag.short}"):
            found.append(f"-{flag.short}\t{flag.help}")
    single = len(found) == 1 and found[0].split("\t")[0].endswith("=")
    return Offers(found, NO_FILES | NO_SPACE if single else NO_FILES)


async def _values(flag: Flag, last: str, rest: list[str], flags: Flags, io: CommandIO, local: bool) -> Offers:
    if flag.choices:
        return Offers([one for one in flag.choices if one.startswith(last)])
    invocation = _invocation(flags, rest, io, local)
    if invocation is None:
        return Offers([])
    if flag.name == "namespace":
        return Offers(await _names(invocation, "namespaces", last))
    if flag.name in ("context", "cluster", "user"):
        return Offers(_entries(invocation, f"{flag.name}s", last))
    if flag.name == "container" and invocation.args:
        return Offers(await _containers(invocation, invocation.args[0], last))
    files = flag.name in _FILE_FLAGS or flag.name.endswith(_FILE_ENDINGS)
    return Offers([], DEFAULT if files else NO_FILES)


async def _arguments(path: str, last: str, rest: list[str], flags: Flags, io: CommandIO, local: bool) -> Offers:
    invocation = _invocation(flags, rest, io, local)
    if invocation is None:
        return Offers([])
    args = invocation.args
    if path == "help":
        return Offers(_children(_found(args)[0], last))
    if path in _CONTEXTS:
        return Offers(_entries(invocation, "contexts", last) if not args else [])
    if path in _SECTIONS:
        return Offers(_entries(invocation, _SECTIONS[path], last) if not args else [])
    if path == "completion":
        return Offers([one for one in ("bash", "fish", "zsh") if one.startswith(last)] if not args else [])
    if path in _NAMES_OF:
        return Offers([one for one in await _names(invocation, _NAMES_OF[path], last) if one not in args])
    if path in ("lesson", "demo"):
        return Offers(_taught(path, args, last))
    if path in _KINDS:
        return Offers(await _kinds(invocation, last) if not args else [])
    if path in _KINDS_THEN_NAMES:
        return await _kind_or_name(invocation, args, last)
    if path in _PODS:
        return await _pod(invocation, path, args, last)
    return Offers([], DEFAULT if path in _FILES else NO_FILES)


def _taught(path: str, args: list[str], last: str) -> list[str]:
    """Return the lessons by name, or the scenes of the demo by number, with their titles."""
    # Imported here because no other command needs them.
    if path == "lesson":
        from setpoint.web.lessons.folder import built_in_course

        lessons = built_in_course().lessons
        return [f"{one.name}\t{one.title}" for one in lessons if one.name.startswith(last)] if not args else []
    from setpoint.cli.lessons.playing import demo_lesson, scenes_of

    count = len(scenes_of(demo_lesson()))
    return [str(number) for number in range(1, count + 1) if str(number).startswith(last)]


async def _kind_or_name(invocation: Invocation, args: list[str], last: str) -> Offers:
    kind, slash, name = last.partition("/")
    if slash:
        return Offers([f"{kind}/{one}" for one in await _names(invocation, kind, name)])
    if not args:
        return Offers(await _kinds(invocation, last))
    if "/" in args[0]:
        return Offers([])
    used = set(args[1:])
    return Offers([one for one in await _names(invocation, args[0], last) if one not in used])


async def _pod(invocation: Invocation, path: str, args: list[str], last: str) -> Offers:
    if path == "cp":
        if args or last[:1] in ("/", ".", "~") or ":" in last:
            return Offers([], DEFAULT)
        return Offers([f"{one}:" for one in await _names(invocation, "pods", last)], NO_SPACE)
    kind, slash, name = last.partition("/")
    if slash:
        return Offers([f"{kind}/{one}" for one in await _names(invocation, kind, name)])
    if not args:
        kinds = [f"{one}/" for one in _LOGGED if last and one.startswith(last)]
        pods = await _names(invocation, "pods", last)
        return Offers([*pods, *kinds], NO_FILES if pods or not kinds else NO_FILES | NO_SPACE)
    if path == "port-forward":
        return Offers(await _ports(invocation, args[0], last))
    return Offers(await _containers(invocation, args[0], last) if path == "logs" else [])


def _invocation(flags: Flags, rest: list[str], io: CommandIO, local: bool) -> Invocation | None:
    """Return the command line as far as it is typed; None if it is invalid."""
    # Required flags may still follow, and requests must be fast.
    own = {flag.name for flag in flags.all}
    every = (*flags.all, *(flag for flag in connection.FLAGS if flag.name not in own))
    quick = {"request-timeout": _REQUEST_TIMEOUT}
    lenient = Flags(flag._replace(required=False, default=quick.get(flag.name, flag.default)) for flag in every)
    try:
        line = lenient.parse(rest)
    except UsageProblem:
        return None
    return Invocation(io, line, "setpoint __complete", local=local)


def _entries(invocation: Invocation, section: str, last: str) -> list[str]:
    from setpoint.cli.kubeconfig_files import Files

    try:
        return sorted(name for name in Files(invocation).shown().section(section) if name.startswith(last))
    except EXPECTED:
        return []


async def _kinds(invocation: Invocation, last: str) -> list[str]:
    try:
        known = await invocation.client.discovery.resources()
    except EXPECTED:
        return []
    finally:
        await invocation.close()
    done, comma, last = last.rpartition(",")
    plain = dict.fromkeys(one.plural if not one.group else f"{one.plural}.{one.group}" for one in known)
    return sorted(done + comma + name for name in plain if name.startswith(last))


async def _listed(invocation: Invocation, kind: str) -> list[dict[str, Any]]:
    try:
        resource = await invocation.client.discovery.search(kind)
        namespace = invocation.namespace if resource.namespaced else ""
        found = await invocation.client.list(resource, namespace, metadata_only=True)
    except EXPECTED:
        return []
    finally:
        await invocation.close()
    return found.items[:_MAX]


async def _names(invocation: Invocation, kind: str, last: str) -> list[str]:
    return sorted(
        one["metadata"]["name"] for one in await _listed(invocation, kind) if one["metadata"]["name"].startswith(last)
    )


async def _one(invocation: Invocation, word: str) -> dict[str, Any]:
    kind, slash, name = word.partition("/")
    try:
        resource = await invocation.client.discovery.search(kind if slash else "pods")
        return await invocation.client.get(resource, name if slash else kind, invocation.namespace)
    except EXPECTED:
        return {}
    finally:
        await invocation.close()


async def _containers(invocation: Invocation, word: str, last: str) -> list[str]:
    spec: dict[str, Any] = (await _one(invocation, word)).get("spec") or {}
    spec = (spec.get("template") or {}).get("spec") or spec
    parts = ("initContainers", "containers", "ephemeralContainers")
    return [one["name"] for part in parts for one in spec.get(part) or () if one["name"].startswith(last)]


async def _ports(invocation: Invocation, word: str, last: str) -> list[str]:
    spec: dict[str, Any] = (await _one(invocation, word)).get("spec") or {}
    spec = (spec.get("template") or {}).get("spec") or spec
    numbers = [p["port"] for p in spec.get("ports") or ()]
    numbers += [p["containerPort"] for c in spec.get("containers") or () for p in c.get("ports") or ()]
    return [str(one) for one in dict.fromkeys(numbers) if str(one).startswith(last)]


def _plugins(last: str, io: CommandIO) -> list[str]:
    from setpoint.cli.verbs.plugin import found_plugins

    names = [one.name.split("-", 1)[1] for one in found_plugins(io.environment.get("PATH", ""))]
    return sorted({one.replace("_", "-") for one in names if one.startswith(last)})


async def run(invocation: Invocation) -> None:
    words = list(invocation.args)
    if invocation.io.on_host:
        completing_plugin(words, invocation.io.environment)
    found = await offers(words, invocation.io)
    for word in found.words:
        invocation.print(word)
    invocation.print(f":{found.directive}")


COMMAND = Command("Offer what could be typed next", run, raw=True, hidden=True)
