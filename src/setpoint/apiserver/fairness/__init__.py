"""API priority and fairness: requests are queued fairly, so that no client starves the others."""
