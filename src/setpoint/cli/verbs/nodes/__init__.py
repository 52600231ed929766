"""What people do to nodes: taint, cordon, drain."""
