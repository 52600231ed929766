"""For tests of what runs on a cluster: a whole one in virtual time, faults on demand."""

from setpoint.testing.cluster import VirtualCluster, virtual, virtual_cluster
from setpoint.testing.virtual_time import VirtualClock, VirtualLoop, run_virtual

__all__ = ["VirtualClock", "VirtualCluster", "VirtualLoop", "run_virtual", "virtual", "virtual_cluster"]
