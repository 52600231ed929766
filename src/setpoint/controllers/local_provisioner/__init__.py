"""Makes volumes out of directories of the nodes, for claims of classes with the provisioner `setpoint.dev/local`.

It is a provisioner as any other from outside: the binder asks for a volume by an annotation on the claim, and finds
the one that is made here by the claim that it is reserved for. When the claim is gone and the class said Delete, the
volume is deleted; when the claim grows, so does the volume.
"""

PROVISIONER = "setpoint.dev/local"
