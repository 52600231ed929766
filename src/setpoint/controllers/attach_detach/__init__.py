"""Volumes of storage drivers are brought to the nodes where Pods need them, and away again when nobody does.

Here it is only said where a volume is to be, by a VolumeAttachment for each volume and node; the driver's own attacher
does it and reports. What is attached is then listed in the status of the node: a kubelet waits for that before it
mounts. A volume that can be at one node only is not given to a second one before the first has let go.
"""
