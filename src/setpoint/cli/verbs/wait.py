"""`wait`: wait until objects exist, are deleted, or have a condition or field value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import array, duration, switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import ALL_NAMESPACES, FILES, SELECTORS, Chosen, Target, choose, fetch
from setpoint.cli.waiting import FOREVER, TIMED_OUT, Deadline, TimedOut, follow, until_gone, within
from setpoint.cli.writing import OUTPUT, Results
from setpoint.meta.conditions import conditions_of
from setpoint.meta.errors import NotFound
from setpoint.meta.goformat import plain, quote
from setpoint.meta.jsonpath import JsonPath, JsonPathError
from setpoint.meta.objects import Obj

Check = Callable[[Obj], bool]
Waiter = Callable[[Invocation, Target, Deadline], Awaitable[Obj | None]]
_POLL = 0.5


async def run(invocation: Invocation) -> None:
    results = Results(invocation)
    waiters = [_waiter(typed_value) for typed_value in getattr(invocation.flags, "for")]
    if not waiters:
        raise Failed("unrecognized condition: []")
    typed_value = [one.lower() for one in getattr(invocation.flags, "for")]
    seconds = invocation.flags.timeout if invocation.flags.timeout >= 0 else FOREVER
    chosen = await _chosen(invocation)
    deadline = Deadline(invocation, seconds)
    errors: list[Exception] = []
    if "create" in typed_value:
        found = await _created(invocation, chosen, seconds)
    else:
        found = await fetch(invocation, chosen, errors)
    if "delete" in typed_value:
        errors = [error for error in errors if not isinstance(error, NotFound)]
    for target in found:
        try:
            for waiter in waiters:
                results.add(await waiter(invocation, target, deadline) or target.obj or {}, "condition met")
                invocation.flush()
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)
    if not found and "delete" not in typed_value:
        raise Failed("no matching resources found")


async def _chosen(invocation: Invocation) -> Chosen:
    if invocation.flags.local:
        if invocation.args:
            raise Failed("error: you must specify resources by --filename when --local is set.")
        if not invocation.flags.filename:
            raise Failed("no matching resources found")
    return await choose(invocation, lists=invocation.flags.all)


async def _created(invocation: Invocation, chosen: Chosen, seconds: float) -> list[Target]:
    async def check() -> list[Target]:
        while True:
            errors: list[Exception] = []
            found = await fetch(invocation, chosen, errors)
            raise_all([error for error in errors if not isinstance(error, NotFound)])
            if found and not errors:
                return found
            await invocation.io.clock.sleep(_POLL)

    try:
        return await within(invocation.io, seconds, check())
    except TimedOut:
        raise Failed(TIMED_OUT) from None


def _waiter(typed_value: str) -> Waiter:
    if typed_value.lower() == "delete":
        return _until_deleted
    if typed_value.lower() == "create":
        return _as_found
    what, _, rest = typed_value.partition("=")
    if what == "condition" and "=" in typed_value:
        name, _, status = rest.partition("=")
        return _until(_has_condition(name, status if "=" in rest else "true"))
    if what == "jsonpath" and "=" in typed_value:
        return _until(_has_value(rest))
    raise Failed(f"unrecognized condition: {quote(typed_value)}")


async def _as_found(invocation: Invocation, target: Target, deadline: Deadline) -> Obj | None:
    return target.obj


async def _until_deleted(invocation: Invocation, target: Target, deadline: Deadline) -> Obj | None:
    if invocation.flags.timeout == 0:
        try:
            await invocation.client.get(target.resource, target.name, target.namespace)
        except NotFound:
            return target.obj
        raise Failed(f"condition not met for {target.resource.plural}/{target.name}")
    return await deadline.bound(target, until_gone(invocation, target))


def _until(check: Check) -> Waiter:
    async def wait(invocation: Invocation, target: Target, deadline: Deadline) -> Obj | None:
        if invocation.flags.timeout == 0:
            found = await invocation.client.get(target.resource, target.name, target.namespace)
            if not check(found):
                raise Failed(f"condition not met for {target.resource.plural}/{target.name}")
            return found
        first = True

        def enough(obj: Obj | None) -> bool:
            # An object that was deleted before the first event is an error; one that is deleted later may be recreated.
            nonlocal first
            if obj is None and first:
                raise NotFound.of(target.resource.group, target.resource.plural, target.name)
            first = False
            return obj is not None and check(obj)

        return await deadline.bound(target, follow(invocation, target, enough))

    return wait


def _has_condition(name: str, status: str) -> Check:
    def check(obj: Obj) -> bool:
        for condition in conditions_of(obj):
            if str(condition.get("type", "")).casefold() != name.casefold() or "status" not in condition:
                continue
            observed = condition.get("observedGeneration", obj["status"].get("observedGeneration"))
            generation = obj["metadata"].get("generation")
            if generation is not None and observed is not None and observed < generation:
                return False
            return str(condition["status"]).casefold() == status.casefold()
        return False

    return check


def _has_value(typed_value: str) -> Check:
    parts = _split(typed_value)
    if len(parts) > 2:
        raise Failed(
            "jsonpath wait format must be --for=jsonpath='{.status.readyReplicas}'=3 or "
            "--for=jsonpath='{.status.readyReplicas}'"
        )
    wanted = parts[1].strip("'\"") if len(parts) == 2 else None
    if wanted == "":
        raise Failed(
            "jsonpath wait has to have a value after equal sign, like --for=jsonpath='{.status.readyReplicas}'=3"
        )
    if not parts[0]:
        raise Failed("jsonpath expression cannot be empty")
    try:
        path = JsonPath.parse_relaxed(parts[0], allow_missing_keys=True)
    except JsonPathError as error:
        raise Failed(str(error)) from None

    def check(obj: Obj) -> bool:
        try:
            groups = path.groups(obj)
        except JsonPathError as error:
            raise Failed(str(error)) from None
        if not groups or not groups[0]:
            return False
        if len(groups) > 1:
            raise Failed("given jsonpath expression matches more than one list")
        if len(groups[0]) > 1:
            raise Failed("given jsonpath expression matches more than one value")
        if wanted is None:
            return True
        found = groups[0][0]
        if isinstance(found, dict | list):
            raise Failed("jsonpath leads to a nested object or list which is not supported")
        return plain(found).strip() == wanted.strip()

    return check


def _split(typed_value: str) -> list[str]:
    """Split at single `=`, but not at `==`."""
    return [part.replace("\0", "==") for part in typed_value.replace("==", "\0").split("=")]


COMMAND = Command(
    "Wait for a specific condition on one or many resources",
    run,
    (
        *FILES[:2],
        *SELECTORS,
        *ALL_NAMESPACES,
        *OUTPUT,
        switch("all", help="Select all resources in the namespace of the specified resource types"),
        switch("local", help="Do not check at the server for which objects are meant."),
        duration("timeout", default=30.0, help="How long to wait. Zero: check once; negative: wait for a week."),
        array("for", help="create, delete, condition=NAME[=VALUE], jsonpath='{PATH}'[=VALUE]; all of them, in turn."),
    ),
    usage=(
        "([-f FILENAME] | resource.group/resource.name | resource.group [(-l label | --all)]) "
        "[--for=create|--for=delete|--for condition=available|--for=jsonpath='{}'[=value]] [flags]"
    ),
    about="""
    Wait for a specific condition on one or many resources. Values of conditions are compared without regard to case;
    the value of a condition that is not said is true.
    """,
    examples="""
    # Until a Pod is ready
    setpoint wait --for=condition=Ready pod/web

    # Until it runs
    setpoint wait --for=jsonpath='{.status.phase}'=Running pod/web

    # Until it is gone, for a minute at most
    setpoint wait --for=delete pod/web --timeout=60s

    # Until it is there and then ready
    setpoint wait --for=create --for=condition=Ready pod/web
    """,
)
