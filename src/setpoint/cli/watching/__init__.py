"""`setpoint watch`: the activity of the control loops on one screen."""
