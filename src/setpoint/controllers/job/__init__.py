"""Jobs: Pods that run until enough of them have succeeded, each counted exactly once.

Every Pod carries a finalizer until its end is written down in the Job's status: first its uid is noted as not counted
yet, then the finalizer is removed, then the counter goes up. Whatever happens in between, no Pod is lost or counted
twice.
"""
