"""`metrics.k8s.io`: what nodes and Pods use right now, as the metrics server of other clusters shows it. Served only
where somebody can tell (see `source`)."""
