"""The scheduler: assigns a node to every unscheduled Pod.

Guarantees: Pods are decided one at a time, based on the caches plus all earlier decisions; only the binding waits for
the server, and many bindings run concurrently. A Pod that fits nowhere gets the reasons in its status and is retried as
soon as an event occurs that could make it schedulable.
"""
