"""`setpoint watch`: the loops at work, on one screen."""
