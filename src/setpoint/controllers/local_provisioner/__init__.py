"""Provisions volumes from node directories for StorageClasses with the provisioner `setpoint.dev/local`.

It acts as any external provisioner: the binder requests a volume with an annotation on the claim and finds the volume
by its claimRef. Volumes are deleted with their claim if the reclaim policy is Delete, and resized with it.
"""

PROVISIONER = "setpoint.dev/local"
