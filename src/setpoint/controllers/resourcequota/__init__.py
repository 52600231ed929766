"""ResourceQuotas: what a namespace uses of what it may use, added up from what is there.

Admission charges every write as it happens; here it is found out what was given back, and what was charged in vain.
"""
