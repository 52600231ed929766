"""Answers to "why": the recorded causes of a write, followed back to a person, a timer or the beginning of history.

`facts.py` is what an answer is made of, `walk.py` follows causes, `rules_*.py` explain why something does not happen,
`wording.py` renders an `Answer` as text, JSON or a graph. A reconcile is triggered by changes and acts on the state
that it finds; no answer claims that one change is the reason of another. A trigger that no record states is marked as
probable.
"""
