import os

from setpoint.sdk import run

from .operator import coolstorage_operator
from .provider_client import ProviderClient, over_http

if __name__ == "__main__":
    provider = ProviderClient(over_http(os.environ.get("COOLSTORAGE_URL", "http://127.0.0.1:8900")))
    run(coolstorage_operator(provider))
