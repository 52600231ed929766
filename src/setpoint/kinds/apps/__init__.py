"""Kinds that keep sets of Pods running: apps/v1."""
