"""Jobs: run Pods until enough of them have succeeded, and count each exactly once.

Every Pod has a finalizer until its end is recorded in the Job's status: first its uid is recorded as uncounted, then
the finalizer is removed, then the counter is incremented. An interruption at any point neither loses a Pod nor counts
it twice.
"""
