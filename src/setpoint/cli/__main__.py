"""`python -m setpoint.cli`."""

from setpoint.cli.main import main

main()
