"""Carries out plans of undo and restore (`view/undo_plan.py`): ordinary requests, one after the other, with the rights
of the client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, NamedTuple

from setpoint.client.client import Client
from setpoint.client.current_run import current_run
from setpoint.client.run import PersonalRun
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.view.undo_plan import shown_object

UNDO_PATH: Final = "/setpoint/v1/undo"
"""The path of the server that makes plans."""
_METHODS: Final = ("POST", "PATCH", "DELETE")
_TIMEOUT: Final = 60.0
"""Seconds for which a request is repeated that must wait for an earlier one of the plan to take effect."""
_PAUSE: Final = 0.25


class StepOutcome(NamedTuple):
    """The outcome of one step."""

    step: Mapping[str, Any]
    answer: Mapping[str, Any]
    """The answer of the server; empty if there is none."""
    error: ApiError | str | None = None
    """Why it was not done: the server refused it, or it was not sent; None if it was done. The text names the
    object."""


async def carry_out(client: Client, clock: Clock, plan: Mapping[str, Any]) -> AsyncIterator[StepOutcome]:
    """Send the requests of a plan, and yield what became of each. A step is left out if it needs one that failed."""
    uids: dict[int, str] = {}
    for number, step in enumerate(plan["steps"]):
        shown, links = shown_object(step["object"]), step.get("links") or ()
        if any(each["step"] not in uids for each in links):
            yield StepOutcome(step, {}, f"{shown}: left out, because what it depends on could not be created")
            continue
        request = step["request"]
        if request["method"] not in _METHODS or not str(request["path"]).startswith(("/api/", "/apis/")):
            yield StepOutcome(step, {}, f"{shown}: the request of the plan is not one to an object")
            continue
        for link in links:
            _set(request["body"], link["place"], uids[link["step"]])
        token = current_run.set(PersonalRun(str(plan["reason"])))
        try:
            answer = await _send(client, clock, request, step.get("awaits") or "")
        except ApiError as error:
            error.message = f"{shown}: {error.message}"
            yield StepOutcome(step, {}, error)
            continue
        finally:
            current_run.reset(token)
        uids[number] = (answer.get("metadata") or {}).get("uid") or ""
        yield StepOutcome(step, answer)


def _set(body: Any, place: list[Any], uid: str) -> None:
    for part in place[:-1]:
        body = body[part]
    body[place[-1]] = uid


async def _send(client: Client, clock: Clock, request: Mapping[str, Any], awaits: str) -> dict[str, Any]:
    """Send a request, and repeat it for a while if it is refused for the reason `awaits`."""
    end = clock.monotonic() + _TIMEOUT
    method, path, query = request["method"], str(request["path"]), str(request["query"])
    while True:
        try:
            return await client.sender.json(
                method, path, query, request["body"], content_type=str(request["contentType"])
            )
        except ApiError as error:
            if error.reason != awaits or clock.monotonic() >= end:
                raise
        await clock.sleep(_PAUSE)
