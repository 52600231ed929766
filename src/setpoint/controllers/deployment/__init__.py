"""Deployments: create, scale and delete ReplicaSets so that one template replaces another.

The steps (what to scale, which status to write) are pure functions; `controller` orders them and writes the results.
"""
