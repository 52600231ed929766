"""Deployments: ReplicaSets made, scaled and retired so that one template takes over from another.

The steps (what to scale, what to say in the status) are pure functions over the objects; `controller` puts them in
order and writes what they decide.
"""
