"""The client of the Container Runtime Interface (CRI) and of containerd's events."""
