"""The protobuf form of objects, which Go clients send and request: `reading` and `writing`.

Reading returns a value or raises ProtobufError for any bytes, in time and memory that are linear in their number.
"""

from setpoint.meta.protobuf.reading import FieldNumber, read_message
from setpoint.meta.protobuf.wire import Envelope, ProtobufError, open_envelope

__all__ = ["Envelope", "FieldNumber", "ProtobufError", "open_envelope", "read_message"]
