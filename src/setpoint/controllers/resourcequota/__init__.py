"""ResourceQuotas: recomputes the usage of a namespace from its objects.

Admission charges every write as it happens; this controller finds released and unused charges.
"""
