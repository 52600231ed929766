"""HorizontalPodAutoscalers: scale so that metrics stay at their targets.

Every 15 seconds: read the target's scale and the metrics, compute the replicas that each metric requires, take the
maximum, apply the scaling behavior, write the scale.
"""
