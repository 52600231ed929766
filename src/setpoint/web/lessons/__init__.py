"""Lessons on a running cluster: courses and progress in files, and the observation of a learner's cluster.

The page (`web/feeds/lesson.py`) and `setpoint lesson` use the same parts: `folder.py` reads courses, `progress.py`
keeps progress, `observer.py` collects the facts for checks, and `actions.py` executes faults.
"""
