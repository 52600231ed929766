from datetime import UTC, datetime
from typing import Any

from setpoint.kinds.core.podtemplate import STRATEGY
from setpoint.kinds.strategy import Context
from setpoint.meta.field import FieldError

CTX = Context(now=datetime(2026, 1, 1, tzinfo=UTC))


def template(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j:2"}]
    obj = {
        "metadata": {"name": "t"},
        "template": {"metadata": {"labels": {"x": "y"}}, "spec": {"containers": containers, **spec}},
    }
    STRATEGY.default(obj)
    return obj


def test_columns() -> None:
    assert [column.cell(template(), CTX.now) for column in STRATEGY.columns] == ["t", "a,b", "i:1,j:2", "x=y"]


def test_errors_and_warnings_have_the_path_of_the_template() -> None:
    obj = template(restartPolicy="X", nodeSelector={"beta.kubernetes.io/os": "l"})
    errs: list[FieldError] = []
    STRATEGY.validate(obj, errs, CTX)
    assert [error.field for error in errs] == ["template.spec.restartPolicy"]
    assert STRATEGY.warnings_on_create(obj, CTX)[0].startswith("template.spec.nodeSelector[beta.kubernetes.io/os]: ")
    assert STRATEGY.warnings_on_update(obj, obj, CTX) == []


def test_an_update_may_retain_stored_invalid_values() -> None:
    old = template(hostUsers=False, hostNetwork=True)
    errs: list[FieldError] = []
    STRATEGY.validate_update(old, old, errs, CTX)
    assert errs == []
    STRATEGY.validate(old, errs, CTX)
    assert errs
