"""The network between simulated Pods: cluster DNS, and the way from an address to a Pod.

Nothing is sent anywhere. Names and routes are computed from the Services, EndpointSlices, Pods and nodes that the fleet
sees, at the moment a simulated program asks. EndpointSlices are watched only once a program has asked.
"""
