"""Binds claims and volumes to each other, and decides what becomes of a volume whose claim is gone.

A binding is two pointers, and each is written on its own: first the volume's `claimRef`, by compare-and-swap, so that
a volume is never promised twice; then the claim's `volumeName`. Whatever stops the binder in between, the next look at
either of the two finds what is there and finishes or undoes it.
"""
