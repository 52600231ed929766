import os

from setpoint.sdk import run

from .children import IMAGE
from .operator import postgres_operator

if __name__ == "__main__":
    run(postgres_operator(image=os.environ.get("POSTGRES_IMAGE", IMAGE)))
