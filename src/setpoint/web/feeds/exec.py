"""The conversation `exec`: a command in a container, with a terminal.

Arguments: `namespace`, `pod`, `container` (empty for the default one), `command` (a list of words), `size`.

    tab -> server   {"input": "ls\\r"}   {"size": [columns, rows]}   {"end": true}
    server -> tab   {"output": "..."}   {"status": {"code": 0, "message": ""}}

Of the control sequences in the output, only colours, cursor movements and erasing remain.
"""

from __future__ import annotations

import asyncio
from codecs import getincrementaldecoder
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import orjson

from setpoint.client.resources import builtin, path_of, path_segment, query_of
from setpoint.client.websocket import RESIZE, STATUS, STDERR, STDIN, STDOUT, V4, V5, Channels, open_channels
from setpoint.meta.errors import BadRequest
from setpoint.tasks import child_tasks
from setpoint.view.terminal_text import TerminalFilter
from setpoint.web.feed import Args, Conversation, PageContext, text_argument

_PODS: Final = builtin("pods")
_MAX_WORDS: Final = 100
_MAX_SIZE: Final = 1000
_MAX_STATUS: Final = 64 * 1024


async def run(ctx: PageContext, args: Args, conversation: Conversation) -> None:
    namespace, pod, container = (text_argument(args, name, "") for name in ("namespace", "pod", "container"))
    command = args.get("command", ["sh"])
    if not isinstance(command, list) or not 0 < len(command) <= _MAX_WORDS:
        raise BadRequest(f"argument command must be a list of at most {_MAX_WORDS} words")
    words = [text_argument({"command": word}, "command", most=4096) for word in command]
    try:
        path_segment(namespace, "namespace")
        path = path_of(_PODS, namespace, path_segment(pod, "pod"), "exec")
    except ValueError as error:
        raise BadRequest(str(error)) from None
    options: dict[str, str | int | bool | None] = {
        "container": container,
        "stdin": True,
        "stdout": True,
        "stderr": False,
        "tty": True,
    }
    query = query_of(options) + "".join(f"&command={quote(word, safe='')}" for word in words)
    channels = await open_channels(ctx.client.sender, path, query, (V5, V4))
    try:
        if "size" in args:
            await _resize(channels, args["size"])
        async with child_tasks(_receive(channels, conversation), _send(channels, conversation)) as tasks:
            # The end of the input does not end the command.
            await asyncio.wait((tasks[0],))
            tasks[0].result()
    finally:
        channels.close()


async def _receive(channels: Channels, conversation: Conversation) -> None:
    decoder = getincrementaldecoder("utf-8")("replace")
    shown, status = TerminalFilter(), b""
    while (received := await channels.receive()) is not None:
        channel, data = received
        if channel in (STDOUT, STDERR):
            if text := shown.filtered(decoder.decode(data)):
                await conversation.send({"output": text})
        elif channel == STATUS and len(status) < _MAX_STATUS:
            status += data
    await conversation.send({"status": _outcome(status)})


async def _send(channels: Channels, conversation: Conversation) -> None:
    while True:
        match await conversation.receive():
            case {"input": str(text)}:
                await channels.send(STDIN, text.encode("utf-8", "surrogateescape"))
            case {"size": size}:
                await _resize(channels, size)
            case {"end": True}:
                await channels.end(STDIN)
            case _:
                raise BadRequest("a terminal does not know this message")


async def _resize(channels: Channels, size: Any) -> None:
    match size:
        case [int(columns), int(rows)] if 0 < columns <= _MAX_SIZE and 0 < rows <= _MAX_SIZE:
            await channels.send(RESIZE, orjson.dumps({"Width": columns, "Height": rows}))
        case _:
            raise BadRequest("the size of a terminal must be [columns, rows]")


def _outcome(data: bytes) -> dict[str, Any]:
    """Return the exit code of the command, and the message of a failure."""
    try:
        status = orjson.loads(data or b"{}")
    except orjson.JSONDecodeError:
        status = {"message": data.decode("utf-8", "replace")}
    if not isinstance(status, Mapping) or status.get("status") == "Success" or not data:
        return {"code": 0, "message": ""}
    causes = (status.get("details") or {}).get("causes") or ()
    code = next((str(each.get("message")) for each in causes if each.get("reason") == "ExitCode"), "")
    return {"code": int(code) if code.isdecimal() else 1, "message": str(status.get("message") or "")}
