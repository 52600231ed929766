"""EndpointSlices: the Pods of each Service with a selector, by default at most a hundred per slice.

There is a set of slices for each address family and set of ports. A change of one Pod changes one slice. Slices are
filled up before new ones are created, but not repacked for its own sake, because every change of a slice is sent to
every node.
"""
