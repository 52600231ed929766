from setpoint.sdk import run

from .operator import postgres_operator

if __name__ == "__main__":
    run(postgres_operator())
