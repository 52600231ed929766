"""Deletes the content of terminating namespaces, then finalizes the namespace.

`content` deletes and counts, `conditions` builds the status, `controller` reconciles.
"""
