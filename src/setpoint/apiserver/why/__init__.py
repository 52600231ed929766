"""`GET /setpoint/v1/why`: answers why an object is as it is, or why something does not happen.

The answer is made by `setpoint.view.why` from the recorded causes of writes, the current objects, and what the control
loops of this process report. A user needs the right to get the object, and to get this path; of objects that the user
may not get, the answer says only that there was a change.
"""

WHY_PATH = "/setpoint/v1/why"
