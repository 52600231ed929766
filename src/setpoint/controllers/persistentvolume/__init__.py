"""Binds claims and volumes, and reclaims volumes whose claim is gone.

A binding consists of two references that are written separately: first the volume's `claimRef`, by compare-and-swap, so
that a volume is never bound twice; then the claim's `volumeName`. If the binder is interrupted in between, the next
reconcile of either object completes or reverts the binding.
"""
