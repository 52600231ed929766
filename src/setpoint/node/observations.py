"""Finds the observation of a node that changes the status of a Pod, for the recorded cause of the write. Pure
functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_LISTS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


class Observation(NamedTuple):
    trigger: str
    """The trigger of the write that is not a revision: `exit:137`, `image`, `restart`, `probe:readiness`; empty if the
    agent itself acted."""
    reason: str
    """The observation in a sentence."""


_NOTHING = Observation("", "")


def observation(before: Mapping[str, Any], status: Mapping[str, Any]) -> Observation:
    """Return the most important observation in the fields that a status write changes: an exit before a problem with an
    image, a restart, a probe, a start."""
    found = [each for name in _LISTS if name in status for each in _of_containers(before.get(name), status[name])]
    return min(found)[1] if found else _NOTHING


def _of_containers(before: Any, now: Any) -> Iterator[tuple[int, Observation]]:
    known = {each["name"]: each for each in before or ()}
    for container in now:
        if "name" in container:
            yield from _of_container(known.get(container["name"]) or {}, container)


def _of_container(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[int, Observation]]:
    name, was, state = now["name"], before.get("state") or {}, now.get("state") or {}
    ended = state.get("terminated") or (
        (now.get("lastState") or {}).get("terminated") if now.get("lastState") != before.get("lastState") else None
    )
    waiting = (state.get("waiting") or {}).get("reason") or ""
    if ended and was.get("terminated") != ended:
        why = ended.get("reason") or ""
        detail = f" ({why})" if why not in ("", "Error", "Completed") else ""
        yield (
            0,
            Observation(
                f"exit:{ended.get('exitCode', 0)}",
                f"container {name} exited with code {ended.get('exitCode', 0)}{detail}",
            ),
        )
    elif waiting in _IMAGE_REASONS and waiting != (was.get("waiting") or {}).get("reason"):
        yield 1, Observation("image", f"container {name} has no image: {waiting}")
    elif "running" in state and "running" not in was:
        again = now.get("restartCount", 0) > before.get("restartCount", 0)
        yield (
            (2, Observation("restart", f"container {name} was restarted"))
            if again
            else (4, Observation("", f"container {name} was started"))
        )
    elif "running" in state and before.get("started") != now.get("started"):
        yield 3, Observation("probe:startup", f"container {name} has started")
    elif "running" in state and before.get("ready") != now.get("ready"):
        yield 3, Observation("probe:readiness", f"container {name} is {'' if now.get('ready') else 'not '}ready")
