"""Server-side apply and field ownership.

`update` is for every plain write, `apply` for apply patches; both are pure and return the new managedFields. Objects
are in wire form and decoded (presence rules applied); arguments are never modified. Stored managedFields are trusted to
be canonical, since they were written by this package; those that clients send are not.
"""

from setpoint.meta.apply.field_set import FieldSet, Filter, exclude, include, of_fields
from setpoint.meta.apply.managers import BadManagedFields, TypeMismatch
from setpoint.meta.apply.managers import decode as check_managed_fields
from setpoint.meta.apply.ownership import Converter, WrittenVersion, retain_times, to_parent, to_scale, update
from setpoint.meta.apply.server_side import apply, check_request, check_types

__all__ = [
    "BadManagedFields",
    "Converter",
    "FieldSet",
    "Filter",
    "TypeMismatch",
    "WrittenVersion",
    "apply",
    "check_managed_fields",
    "check_request",
    "check_types",
    "exclude",
    "include",
    "of_fields",
    "retain_times",
    "to_parent",
    "to_scale",
    "update",
]
