"""Lease.

Generated from the field tables by `tools/make_typed_kinds.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing_extensions import ReadOnly

    from setpoint.kinds.typed.metadata import ObjectMeta


class Lease(TypedDict, total=False):
    kind: ReadOnly[str]
    apiVersion: ReadOnly[str]
    metadata: ReadOnly[ObjectMeta]
    spec: ReadOnly[LeaseSpec]


class LeaseSpec(TypedDict, total=False):
    holderIdentity: ReadOnly[str]
    leaseDurationSeconds: ReadOnly[int]
    acquireTime: ReadOnly[str]
    renewTime: ReadOnly[str]
    leaseTransitions: ReadOnly[int]
    strategy: ReadOnly[str]
    preferredHolder: ReadOnly[str]
