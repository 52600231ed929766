"""Pods leave a node with a NoExecute taint: at once, when the time for which they tolerate it is over, or never."""
