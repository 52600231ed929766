"""Allocation of cluster IPs and node ports of Services.

An allocation is written in the same transaction as its Service, under a key that must not exist yet, and removed in the
transaction that deletes the Service. So nothing is allocated twice, by any number of servers on one store, and nothing
leaks if one of them fails.
"""
