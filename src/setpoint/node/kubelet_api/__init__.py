"""The kubelet's HTTP API of a node: logs, exec, attach, port forwarding, usage and metrics, under the kubelet's paths.

This package has no listener and does not authorize: the composition root passes authorized requests in, from the same
process or from a socket."""
