"""Watches that several streams share.

Streams with the same selection and form receive the same bytes. The cache has one watch for all of them: a change is
examined and encoded once, however many clients watch, and written to their connections block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.watch_cache import Change, ResourceCache, Watch
from setpoint.wire.broadcast import Broadcast, Receiver
from setpoint.wire.loop_slices import LoopSlicer
from setpoint.wire.message import encode_chunk


class FrameEncoder:
    """Encodes events. Streams whose encoders have the same `form` send the same bytes; an empty form means that streams
    do not share them."""

    __slots__ = ("_encode", "form")

    def __init__(self, encode: Callable[[str, Entry], bytes], form: str) -> None:
        self._encode = encode
        self.form = form

    def event(self, kind: str, entry: Entry) -> bytes:
        """Return an event, without the frame of a chunk."""
        return self._encode(kind, entry)

    def frame(self, kind: str, entry: Entry, change: Change) -> bytes:
        """Return the event of a change as a chunk, which the first encoder of a form adds to the change."""
        key = (kind, self.form)
        frame = change.frames.get(key)
        if frame is None:
            frame = change.frames[key] = encode_chunk(self._encode(kind, entry))
        return frame


class SharedWatch:
    """One watch of a cache, and the streams that receive its events."""

    __slots__ = ("broadcast", "key", "watch")

    def __init__(self, key: Hashable, like: Watch, encoder: FrameEncoder, broadcast: Broadcast) -> None:
        self.key = key
        self.broadcast = broadcast
        self.watch = like.with_delivery(
            lambda kind, entry, change: broadcast.send(encoder.frame(kind, entry, change)), broadcast.close
        )


class SharedWatches:
    """The shared watches of one resource in one version."""

    __slots__ = ("_cache", "_slicer", "_watches")

    def __init__(self, cache: ResourceCache, slicer: LoopSlicer) -> None:
        self._cache = cache
        self._slicer = slicer
        self._watches: dict[Hashable, SharedWatch] = {}

    def join(self, watch: Watch, encoder: FrameEncoder, receiver: Receiver, max_buffered: int) -> SharedWatch:
        """Let a stream receive all changes from now on that `watch` selects. The receiver is ended when the
        cache stops, or when its client is more than `max_buffered` bytes behind."""
        key = (encoder.form, watch.namespace, watch.name, watch.labels.requirements, watch.fields.requirements)
        shared = self._watches.get(key)
        if shared is None:
            shared = SharedWatch(key, watch, encoder, Broadcast(self._slicer, max_buffered))
            self._watches[key] = shared
            self._cache.add(shared.watch)
        shared.broadcast.add(receiver)
        shared.watch.streams = len(shared.broadcast)
        return shared

    def leave(self, shared: SharedWatch, receiver: Receiver) -> None:
        """Write to a stream what is pending, and nothing more. Streams that were ended must leave too."""
        shared.broadcast.remove(receiver)
        shared.watch.streams = len(shared.broadcast)
        if not shared.watch.streams:
            self._cache.remove(shared.watch)
            # Several streams may have been ended at once: another watch may have this key by now.
            if self._watches.get(shared.key) is shared:
                del self._watches[shared.key]
