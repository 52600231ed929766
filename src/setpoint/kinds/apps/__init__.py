"""Workload kinds that manage sets of Pods: apps/v1."""
