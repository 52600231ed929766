"""CronJobs: a Job each time the clock says so.

The name of a Job is made from the time it was due, so that no time is ever served twice.
"""
