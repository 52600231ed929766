"""`autoscaling`: HorizontalPodAutoscaler in both versions, and the Scale of other kinds."""
