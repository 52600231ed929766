"""HorizontalPodAutoscalers: as many replicas as keep what is measured at its target.

Every 15 seconds: read the target's scale, read the metrics, work out how many replicas each of them asks for, take the
most, damp it by the rules of the behaviour, write the scale.
"""
