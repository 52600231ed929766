"""Cluster IPs and node ports of Services.

What is handed out is written in the same transaction as the Service that gets it, under a key that must not exist yet,
and taken away in the transaction that deletes the Service. So nothing is ever given twice, by any number of servers on
one store, and nothing leaks when one of them dies.
"""
