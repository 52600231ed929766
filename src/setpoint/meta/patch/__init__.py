"""The three patch formats: JSON Patch, JSON Merge Patch, strategic merge patch; and generation of patches.

Each format takes a document and a patch as plain JSON values and returns the new document. Neither is modified, and the
parts that the patch does not touch are shared between the old and the new document, so `is` detects an unchanged one.
Failures are `PatchError`s with the reference's messages; `PatchError.to_api()` is the response to the client.
"""

from setpoint.meta.patch.errors import (
    PatchError,
    PatchRefused,
    PatchTooLarge,
    PatchUndecodable,
    PatchUnprocessable,
)
from setpoint.meta.patch.json_patch import apply_json_patch, decode_json_patch, unknown_operation_fields
from setpoint.meta.patch.merge_patch import apply_merge_patch, merge_patch_between, three_way_merge
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
