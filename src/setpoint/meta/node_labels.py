"""The well-known labels and taints of nodes."""

from __future__ import annotations

HOSTNAME = "kubernetes.io/hostname"
OS, ARCH = "kubernetes.io/os", "kubernetes.io/arch"
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
EXCLUDE_FROM_LOAD_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"

DEPRECATED = {
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
}
"""The labels that replace deprecated ones, by the deprecated name."""

TAINT_NOT_READY = "node.kubernetes.io/not-ready"
TAINT_UNREACHABLE = "node.kubernetes.io/unreachable"
TAINT_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
TAINT_MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
TAINT_DISK_PRESSURE = "node.kubernetes.io/disk-pressure"
TAINT_PID_PRESSURE = "node.kubernetes.io/pid-pressure"
TAINT_NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"
TAINT_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
