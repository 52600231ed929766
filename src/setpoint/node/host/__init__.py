"""A real node: runs the containers of Pods on this machine through a container runtime, as the kubelet does.

Guarantees:

- Containers outlive the agent: a restarted agent adopts what runs. The runtime's labels and the agent's directories
  hold everything that it needs for that.
- Containers, mounts and cgroups that the agent did not create are never touched.
- The event loop never waits for files, mounts or processes: `BlockingPool` runs those calls.
"""
