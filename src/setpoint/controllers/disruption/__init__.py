"""PodDisruptionBudgets: compute how many of the selected Pods may be disrupted now.

The API server decrements the status of a budget with each eviction; this controller recomputes it. If the number cannot
be determined, no disruption is allowed.
"""
