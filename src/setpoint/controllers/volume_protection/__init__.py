"""Protects claims that Pods use and volumes that are bound, with finalizers.

The API server adds the finalizers on creation; these controllers remove them when the object is unused.
"""
