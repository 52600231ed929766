"""The network of a real node: Services, host ports, routes, policies and DNS.

Guarantees:

- All packet rules are in one nftables table, so that removing the table removes every rule.
- Every part compares desired with observed state: a change that is missed or fails is repaired later.
"""
