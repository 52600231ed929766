"""The verbs of kubectl, one file each. They access the cluster only through `client`."""
