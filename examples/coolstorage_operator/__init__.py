"""An operator for something outside the cluster: `python -m examples.coolstorage_operator`."""

from .kind import CoolStorage
from .operator import coolstorage_operator
from .provider_client import ProviderClient, over_http

__all__ = ["CoolStorage", "ProviderClient", "coolstorage_operator", "over_http"]
