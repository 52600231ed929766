"""EndpointSlices: the Pods behind each Service that has a selector, a hundred at most in each slice.

One slice set for each address family and each set of ports. A change of one Pod changes one slice; slices are filled up
before new ones are made, but never repacked for the sake of it: every change of a slice goes to every node.
"""
