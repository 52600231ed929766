"""The end of namespaces: what is in them is deleted, and only when nothing is left does the namespace itself go.

`content` deletes and counts, `conditions` puts into words, `controller` decides when.
"""
