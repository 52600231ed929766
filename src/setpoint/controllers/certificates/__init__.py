"""Approves certificate signing requests of nodes, signs approved requests, and cleans up old ones.

The modules that parse certificates are imported with the first request, because loading them is slow.
"""
