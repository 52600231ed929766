"""What the comparison with kubectl smooths away."""

from __future__ import annotations

import json

import yaml
from comparing import managers_in_order

FIRST = {"manager": "a", "fieldsV1": {"f:metadata": {"f:labels": {"f:theirs": {}}}}, "operation": "Update"}
SECOND = {"manager": "b", "fieldsV1": {'k:{"containerPort":80,"protocol":"TCP"}': {}}, "operation": "Update"}


def _object(*managers: object) -> dict[str, object]:
    return {"kind": "List", "items": [{"metadata": {"managedFields": list(managers), "name": "web"}, "spec": [1, 2]}]}


def test_the_order_of_managers_does_not_matter() -> None:
    one, other = _object(FIRST, SECOND), _object(SECOND, FIRST)
    for written in (yaml.safe_dump, lambda value: json.dumps(value, indent=4)):
        assert written(one) != written(other)
        assert managers_in_order(written(one)) == managers_in_order(written(other))
        assert yaml.safe_load(managers_in_order(written(other))) in (one, other)
