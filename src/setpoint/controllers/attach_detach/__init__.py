"""Attaches CSI volumes to the nodes whose Pods need them, and detaches them afterwards.

This controller only declares where a volume should be attached, with a VolumeAttachment per volume and node; the
driver's external attacher acts on it and reports. Attached volumes are then listed in the node's status, which a
kubelet waits for before it mounts. A volume that can be attached to one node only is not attached to a second node
before it was detached from the first.
"""
