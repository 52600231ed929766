"""The feeds and conversations that a tab can open. Each is imported when it is first opened."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from setpoint.web.feed import RunConversation, RunFeed

_FEEDS: Final[dict[str, str]] = {
    # name: module with a function `run` (RunFeed)
    "events": "setpoint.web.feeds.events",
    "kinds": "setpoint.web.feeds.kinds",
    "objects": "setpoint.web.feeds.objects",
    "writes": "setpoint.web.feeds.writes",
    "chain": "setpoint.web.feeds.chain",
    "object": "setpoint.web.feeds.object",
    "timeline": "setpoint.web.feeds.timeline",
    "differences": "setpoint.web.feeds.differences",
    "versions": "setpoint.web.feeds.versions",
    "loops": "setpoint.web.feeds.loops",
    "faults": "setpoint.web.feeds.faults",
    "yaml": "setpoint.web.feeds.yaml",
    "lessons": "setpoint.web.feeds.lessons",
}

_CONVERSATIONS: Final[dict[str, str]] = {
    # name: module with a function `run` (RunConversation)
    "fleet": "setpoint.web.feeds.fleet",
    "editor": "setpoint.web.feeds.editor",
    "exec": "setpoint.web.feeds.exec",
    "logs": "setpoint.web.feeds.logs",
    "lesson": "setpoint.web.feeds.lesson",
    "progress": "setpoint.web.feeds.progress",
    "undo": "setpoint.web.feeds.undo",
}


def feed_names() -> list[str]:
    return [*_FEEDS]


def conversation_names() -> list[str]:
    return [*_CONVERSATIONS]


def find_feed(name: str) -> RunFeed | None:
    """Return the feed of this name; None if there is none."""
    module = _FEEDS.get(name)
    if module is None:
        return None
    run: RunFeed = import_module(module).run
    return run


def find_conversation(name: str) -> RunConversation | None:
    """Return the conversation of this name; None if there is none."""
    module = _CONVERSATIONS.get(name)
    if module is None:
        return None
    run: RunConversation = import_module(module).run
    return run
