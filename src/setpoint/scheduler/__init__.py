"""The scheduler: finds a node for every Pod that has none.

What it promises: a Pod is decided about on everything the caches show plus everything decided before, one Pod at a
time; only the binding itself waits for the server, many at once. A Pod that fits nowhere says why, and is tried again
as soon as something has changed that could help it.
"""
