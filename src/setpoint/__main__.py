"""`python -m setpoint`."""

from setpoint.cli.main import main

if __name__ == "__main__":
    main()
