"""`taint`: set and remove taints of nodes."""

from __future__ import annotations

from typing import NamedTuple

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import SELECTORS, Chosen, Selection, Target, fetch, find_kind
from setpoint.cli.writing import (
    DRY_RUN,
    OUTPUT,
    VALIDATE,
    DryRun,
    Results,
    dry_run,
    field_manager,
    validation,
)
from setpoint.client.resources import builtin
from setpoint.meta.goformat import aggregate, quote
from setpoint.meta.names import label_value, qualified_name
from setpoint.meta.objects import Obj

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class Taint(NamedTuple):
    key: str
    value: str
    effect: str

    @property
    def as_field(self) -> Obj:
        return {"key": self.key, **({"value": self.value} if self.value else {}), "effect": self.effect}


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    dry = dry_run(invocation)
    directive = validation(invocation)
    words, given = _split(invocation.args)
    if not words:
        raise Failed("one or more resources must be specified as <resource> <name>")
    if not given:
        raise Failed("at least one taint update is required")
    try:
        new, gone = parsed(given)
    except Failed as error:
        invocation.usage(str(error))
    await _check(invocation, words, new, gone)
    results = Results(invocation)  # kubectl does not report a dry run here
    nodes = builtin("nodes")
    targets = [] if flags.all or flags.selector else [Target(nodes, "", name) for name in words[1:]]
    everywhere = [] if targets else [Selection(nodes, "", flags.selector)]
    errors: list[Exception] = []
    for target in await fetch(invocation, Chosen(targets, everywhere, False), errors):
        try:
            taints, done = changed(target.obj or {}, new, gone, flags.overwrite)
            node = await _written(invocation, target, taints, dry, directive)
        except EXPECTED as error:
            errors.append(error)
            continue
        results.add(node, done, typed=dry is not DryRun.CLIENT)
    raise_all(errors)


def _split(args: list[str]) -> tuple[list[str], list[str]]:
    words: list[str] = []
    given: list[str] = []
    for word in args:
        if "=" in word or ":" in word or word.endswith("-"):
            given.append(word)
        elif given:
            raise Failed(f"all resources must be specified before taint changes: {word}")
        else:
            words.append(word)
    return words, given


async def _check(invocation: Invocation, words: list[str], new: list[Taint], gone: list[Taint]) -> None:
    kind = words[0].lower()
    if (await find_kind(invocation, kind)).kind != "Node":
        raise Failed(f"invalid resource type {kind}, only node types are supported")
    both = [
        f"{other.key}={other.effect}"
        for one in new
        for other in gone
        if one.key == other.key and other.effect in ("", one.effect)
    ]
    if both:
        raise Failed(f"can not both modify and remove the following taint(s) in the same command: {', '.join(both)}")
    if invocation.flags.all and invocation.flags.selector:
        raise Failed("setting 'all' parameter with a non empty selector is prohibited")
    if not (invocation.flags.all or invocation.flags.selector) and len(words) < 2:
        raise Failed("at least one resource name must be specified since 'all' parameter is not set")


def parsed(given: list[str]) -> tuple[list[Taint], list[Taint]]:
    """Return the taints to set and those to remove. Raise Failed."""
    new: list[Taint] = []
    gone: list[Taint] = []
    for word in given:
        taint = _parse(word.removesuffix("-"))
        if word.endswith("-"):
            gone.append(taint)
            continue
        if not taint.effect:
            raise Failed(f"invalid taint spec: {word}")
        if any((one.key, one.effect) == (taint.key, taint.effect) for one in new):
            shown = f"{{{taint.key} {taint.value} {taint.effect} <nil>}}"
            raise Failed(f"duplicated taints with the same key and effect: {shown}")
        new.append(taint)
    return new, gone


def _parse(given: str) -> Taint:
    parts = given.split(":")
    key, value, effect = parts[0], "", ""
    if len(parts) > 2:
        raise Failed(f"invalid taint spec: {given}")
    if len(parts) == 2:
        effect = parts[1]
        if effect not in _EFFECTS:
            raise Failed(f"invalid taint effect: {effect}, unsupported taint effect")
        key, equals, value = parts[0].partition("=")
        if "=" in value:
            raise Failed(f"invalid taint spec: {given}")
        if equals and (problems := label_value(value)):
            raise Failed(f"invalid taint spec: {given}, {'; '.join(problems)}")
    if problems := qualified_name(key):
        raise Failed(f"invalid taint spec: {given}, {'; '.join(problems)}")
    return Taint(key, value, effect)


def changed(node: Obj, new: list[Taint], gone: list[Taint], overwrite: bool) -> tuple[list[Obj], str]:
    """Return the new taints of the node, and the name of the operation. Raise Failed."""
    there: list[Obj] = (node.get("spec") or {}).get("taints") or []
    wanted = {(one.key, one.effect) for one in new}
    if not overwrite:
        already = [one.key for one in new for old in there if (one.key, one.effect) == (old["key"], old.get("effect"))]
        if already:
            raise Failed(
                f"node {node['metadata']['name']} already has {','.join(already)} taint(s) with same effect(s) and "
                "--overwrite is false"
            )
    taints = [one.as_field for one in new] + [old for old in there if (old["key"], old.get("effect")) not in wanted]
    added = len(taints) != len(there)
    removed = False
    missing: list[str] = []
    for one in gone:
        left = [old for old in taints if old["key"] != one.key or one.effect not in ("", old.get("effect"))]
        removed = len(left) != len(taints)
        taints = left
        if not removed:
            missing.append(f"taint {quote(f'{one.key}:{one.effect}' if one.effect else one.key)} not found")
    if missing:
        raise Failed(aggregate(missing))
    return taints, "modified" if overwrite or (added and removed) else "tainted" if added else "untainted"


async def _written(invocation: Invocation, target: Target, taints: list[Obj], dry: DryRun, directive: str) -> Obj:
    node = target.obj or {}
    spec = {key: value for key, value in (node.get("spec") or {}).items() if key != "taints"}
    if dry is DryRun.CLIENT:
        return {**node, "spec": {**spec, "taints": taints} if taints else spec}
    return await invocation.client.patch(
        target.resource,
        target.name,
        {"spec": {"taints": taints or None}},
        kind="strategic",
        dry_run=dry is DryRun.SERVER,
        field_manager=invocation.flags.field_manager,
        field_validation=directive,
    )


COMMAND = Command(
    "Update the taints on one or more nodes",
    run,
    (
        *OUTPUT,
        *DRY_RUN,
        *VALIDATE,
        *SELECTORS[:1],
        *field_manager("kubectl-taint"),
        switch("overwrite", help="Allow taints that are there to be overwritten."),
        switch("all", help="Select all nodes in the cluster"),
    ),
    usage="NODE NAME KEY_1=VAL_1:TAINT_EFFECT_1 ... KEY_N=VAL_N:TAINT_EFFECT_N",
    about=f"A taint has a key, perhaps a value, and an effect: {', '.join(_EFFECTS)}. A minus at the end removes it.",
    examples="""
    # Only Pods that tolerate it get there
    setpoint taint nodes node-1 dedicated=batch:NoSchedule

    # Without it again
    setpoint taint nodes node-1 dedicated:NoSchedule-
    """,
)
