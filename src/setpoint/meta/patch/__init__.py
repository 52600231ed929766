"""The three patch formats: JSON Patch, JSON Merge Patch, strategic merge patch; and patches made from documents.

Each format takes a document and a patch as plain JSON values and returns the new document. Neither is ever changed, and
what the patch does not touch is shared between the old and the new document: `is` tells that it is unchanged.
Failures are `PatchError`s with the reference's own texts; `PatchError.to_api()` is the answer that a client gets.
"""

from setpoint.meta.patch.errors import (
    PatchError,
    PatchRefused,
    PatchTooLarge,
    PatchUndecodable,
    PatchUnprocessable,
)
from setpoint.meta.patch.json_patch import apply_json_patch, decode_json_patch, unknown_operation_fields
from setpoint.meta.patch.merge_diff import merge_patch_between, three_way_merge
from setpoint.meta.patch.merge_patch import apply_merge_patch
from setpoint.meta.patch.strategic import apply_strategic
from setpoint.meta.patch.strategic_diff import three_way_strategic, two_way_strategic

__all__ = [
    "PatchError",
    "PatchRefused",
    "PatchTooLarge",
    "PatchUndecodable",
    "PatchUnprocessable",
    "apply_json_patch",
    "apply_merge_patch",
    "apply_strategic",
    "decode_json_patch",
    "merge_patch_between",
    "three_way_merge",
    "three_way_strategic",
    "two_way_strategic",
    "unknown_operation_fields",
]
