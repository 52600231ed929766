"""Authorizers that are configured in files, and those that are asked over the network."""
