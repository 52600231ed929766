"""The streams of a command over SPDY: each is a stream of the connection, and its headers say which."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import orjson

from setpoint.node.kubelet_api.messages import Headers, Refused
from setpoint.node.kubelet_api.remote_streams import RESIZE, STATUS, STDERR, STDIN, STDOUT, Obj, Received
from setpoint.node.kubelet_api.spdy import Data, Ended, Opened, SpdyConnection, SpdyError

_CHANNELS: Final = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": STATUS, "resize": RESIZE}
_V4: Final = "v4.channel.k8s.io"
PROTOCOLS: Final = (_V4, "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")


def is_spdy(headers: Mapping[str, str]) -> bool:
    return headers.get("upgrade", "").strip().lower() == "spdy/3.1"


def accepted(offered: Sequence[str], ours: Sequence[str] = PROTOCOLS) -> tuple[str, Headers]:
    """The protocol to speak, the first of ours that the client knows too, and the headers of the answer.
    Raises Refused."""
    known = [each.strip() for line in offered for each in line.split(",")]
    chosen = next((each for each in ours if each in known), None)
    if not any(known):
        chosen = ours[-1]  # an old client, from before they were named
    if chosen is None:
        raise Refused(
            403, f"unable to upgrade: unable to negotiate protocol: client supports {known}, server accepts {ours}"
        )
    answer = [("Upgrade", "SPDY/3.1"), ("Connection", "Upgrade"), ("X-Stream-Protocol-Version", chosen)]
    return chosen, answer


class SpdyStreams:
    """A RemoteStreams."""

    def __init__(self, connection: SpdyConnection, protocol: str) -> None:
        self._connection = connection
        self._protocol = protocol
        self._ids: dict[int, int] = {}
        """The stream of each channel."""
        self._channels: dict[int, int] = {}
        self._early: list[Received] = []

    async def open(self, wanted: Collection[int]) -> bool:
        """Waits until the client has opened all of these; False: it never did."""
        while not all(channel in self._ids for channel in wanted):
            try:
                event = await self._connection.receive()
            except SpdyError:
                return False
            if event is None:
                return False
            self._note(event)
        return True

    def write(self, channel: int, data: bytes) -> None:
        stream = self._ids.get(channel)
        if stream is not None:
            self._connection.write(stream, data)

    async def drained(self) -> None:
        await self._connection.drained()

    async def receive(self) -> Received | None:
        while not self._early:
            try:
                event = await self._connection.receive()
            except SpdyError:
                return None
            if event is None:
                return None
            self._note(event)
        return self._early.pop(0)

    def _note(self, event: Opened | Data | Ended) -> None:
        if isinstance(event, Opened):
            channel = _CHANNELS.get(event.headers.get("streamtype", ""))
            if channel is not None:
                self._ids[channel] = event.stream
                self._channels[event.stream] = channel
            return
        channel = self._channels.get(event.stream)
        if channel is None:
            return
        if isinstance(event, Data) and event.data:
            self._early.append(Received(channel, event.data))
        if isinstance(event, Ended) or event.last:
            self._early.append(Received(channel, None))

    def finish(self, status: Obj) -> None:
        if self._protocol == _V4:
            self.write(STATUS, orjson.dumps(status))
        elif status["status"] != "Success":
            self.write(STATUS, status["message"].encode())
        for channel in (STDOUT, STDERR, STATUS):
            if channel in self._ids:
                self._connection.write(self._ids[channel], b"", last=True)
        self._connection.close(max(self._channels, default=0))
