"""Node maintenance: taint, cordon, drain."""
