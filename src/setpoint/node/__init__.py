"""The node agent; simulated nodes are a fleet of them in one."""
