"""`policy`: PodDisruptionBudget."""
