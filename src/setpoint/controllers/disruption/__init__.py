"""PodDisruptionBudgets: how many of the Pods they select may be taken down right now.

The API server asks the status of a budget before it evicts, and takes from it; this controller fills it up again. When
it cannot know, it allows nothing.
"""
