"""Reading the protobuf form of objects, which Go clients send. Nothing is written in it.

Whatever the bytes, reading ends with a value or a ProtobufError, in time and memory that grow with their number alone.
"""

from setpoint.meta.protobuf.envelope import Envelope, open_envelope
from setpoint.meta.protobuf.messages import FieldNumber, read_message
from setpoint.meta.protobuf.wire import ProtobufError

__all__ = ["Envelope", "FieldNumber", "ProtobufError", "open_envelope", "read_message"]
