"""The chain of objects around one object, or of a namespace: owners, dependents, selectors, nodes, and their actors.

Guarantees: the graph is bounded (`graph.MAX_BOXES`), of many siblings some are shown and the others counted, and
nothing that is left out is left out silently.
"""
