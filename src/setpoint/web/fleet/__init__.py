"""The state of all Pods and nodes of a cluster as one array of bytes, for a picture of the whole fleet.

Guarantees:
- Pods are not kept: a Pod is a byte in the array and its name;
- no step holds the event loop for long: lists are read in small pages, and searches and frames are made in pieces;
- a Pod keeps its slot for as long as it is bound to its node, so that its place in the picture is stable.

`state.py` is the array, `source.py` keeps it up to date, `frames.py` has the form in which it is sent, and `search.py`
finds Pods in it.
"""
