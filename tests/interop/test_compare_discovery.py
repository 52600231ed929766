"""`api-resources` and `api-versions`: the same output by kubectl and by `setpoint`."""

from __future__ import annotations

from comparing import Both


def test_discovery(both: Both) -> None:
    both.reads("""
        api-versions
        api-resources
        api-resources -o wide
        api-resources -o name
        api-resources --namespaced=false
        api-resources --namespaced=true -o name
        api-resources --api-group=apps
        api-resources --api-group=
        api-resources --verbs=list,get
        api-resources --categories=all
        api-resources --no-headers
        api-resources --sort-by=name
        api-resources --sort-by=kind
        ! api-resources --sort-by=size
        ! api-resources pods
        ! api-versions --nope
    """)
