"""The control loop of any object: its desired state, its observed state, the difference, and what is done about it.

`look` makes a `Loop` of an object, with an adapter for each important kind and a generic one for all others, custom
kinds included. The texts are the same wherever they are shown: in the page, by `setpoint watch` and by
`setpoint status`.
"""

from setpoint.view.loop.look import look, pods_of
from setpoint.view.loop.values import Drift, Gauge, Loop, Phase, Related

__all__ = ["Drift", "Gauge", "Loop", "Phase", "Related", "look", "pods_of"]
