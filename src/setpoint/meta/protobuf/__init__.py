"""The protobuf form of objects, which Go clients send and ask for: reading it, and writing it (`writing`).

Whatever the bytes, reading ends with a value or a ProtobufError, in time and memory that grow with their number alone.
"""

from setpoint.meta.protobuf.envelope import Envelope, open_envelope
from setpoint.meta.protobuf.messages import FieldNumber, read_message
from setpoint.meta.protobuf.wire import ProtobufError

__all__ = ["Envelope", "FieldNumber", "ProtobufError", "open_envelope", "read_message"]
