"""The streams of a command that runs elsewhere: input, output, errors, the size of a terminal, and how it ended."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import Any, NamedTuple, Protocol

import orjson

from setpoint.node.kubelet_api.websocket import WebSocket

Obj = dict[str, Any]

STDIN, STDOUT, STDERR, STATUS, RESIZE = range(5)
_CLOSE_STREAM = 255
_V5, _V4, _V4_BASE64 = "v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"
PROTOCOLS = (_V5, _V4, _V4_BASE64, "channel.k8s.io", "base64.channel.k8s.io", "")
_WITH_STATUS = (_V5, _V4, _V4_BASE64)

SUCCESS: Obj = {"metadata": {}, "status": "Success"}


class Received(NamedTuple):
    channel: int
    data: bytes | None
    """None: the client has closed this stream."""


class RemoteStreams(Protocol):
    def write(self, channel: int, data: bytes) -> None: ...

    async def drained(self) -> None: ...

    async def receive(self) -> Received | None:
        """What the client sends next; None when it is gone."""
        ...

    def finish(self, status: Obj) -> None:
        """Tells how it ended. Nothing is written after this."""
        ...


class WebSocketStreams:
    """Each message begins with the number of its stream, as a byte or, in the Base64 forms, as a digit."""

    def __init__(self, socket: WebSocket, protocol: str) -> None:
        self._socket = socket
        self._protocol = protocol
        self._base64 = "base64" in protocol

    def write(self, channel: int, data: bytes) -> None:
        if self._base64:
            self._socket.send(b"%d%b" % (channel, b64encode(data)), text=True)
        else:
            self._socket.send(bytes((channel,)) + data)

    async def drained(self) -> None:
        await self._socket.drained()

    async def receive(self) -> Received | None:
        while (message := await self._socket.receive()) is not None:
            if not message:
                continue
            if self._base64:
                try:
                    return Received(message[0] - ord("0"), b64decode(message[1:], validate=True))
                except NotBase64:
                    continue
            if message[0] == _CLOSE_STREAM and self._protocol == _V5:
                if len(message) == 2:
                    return Received(message[1], None)
                continue
            return Received(message[0], message[1:])
        return None

    def close(self) -> None:
        self._socket.close()

    def finish(self, status: Obj) -> None:
        if self._protocol in _WITH_STATUS:
            self.write(STATUS, orjson.dumps(status))
        elif status["status"] != "Success":
            self.write(STATUS, status["message"].encode())
        self._socket.close()


def failure(exit_code: int) -> Obj:
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {exit_code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(exit_code)}]},
    }


def internal_error(why: str) -> Obj:
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {why}",
        "reason": "InternalError",
        "details": {"causes": [{"message": why}]},
        "code": 500,
    }
