"""Validation of names, label keys and values, ports and the like. Each function returns error messages; empty means
valid."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from setpoint.meta.caching import memoized

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_UNDERSCORE = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = _LABEL + r"(\." + _LABEL + ")*"
_SUBDOMAIN_UNDERSCORE = _LABEL_UNDERSCORE + r"(\." + _LABEL_UNDERSCORE + ")*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_WILDCARD = r"\*\." + _SUBDOMAIN
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = "(" + _QUALIFIED + ")?"

# None of these patterns backtracks more than linearly on the bounded inputs it is given: lengths are checked first.
_label_re = re.compile(_LABEL)
_subdomain_re = re.compile(_SUBDOMAIN)
_subdomain_caseless_re = re.compile(_SUBDOMAIN, re.IGNORECASE)
_subdomain_underscore_re = re.compile(_SUBDOMAIN_UNDERSCORE)
_label_1035_re = re.compile(_LABEL_1035)
_wildcard_re = re.compile(_WILDCARD)
_qualified_re = re.compile(_QUALIFIED)
_c_identifier_re = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_env_re = re.compile("[-._a-zA-Z][-._a-zA-Z0-9]*")
_config_key_re = re.compile("[-._a-zA-Z0-9]+")
_percent_re = re.compile("[0-9]+%")
_header_re = re.compile("[-A-Za-z0-9]+")
_http_path_re = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")

_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_SUBDOMAIN_CASELESS_TEXT = (
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_SUBDOMAIN_UNDERSCORE_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character"
)
_WILDCARD_TEXT = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character"
)
_QUALIFIED_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)

EMPTY = "must be non-empty"


def regex_error(text: str, pattern: str, *examples: str) -> str:
    if not examples:
        return f"{text} (regex used for validation is '{pattern}')"
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


def max_length(limit: int) -> str:
    return f"must be no more than {limit} characters"


def max_bytes(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def in_range(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


@memoized(maxsize=4096)
def _dns1123_label(value: str) -> tuple[str, ...]:
    errors = []
    if len(value.encode()) > 63:
        errors.append(max_length(63))
    if not _label_re.fullmatch(value):
        if _subdomain_re.fullmatch(value[:1024]):
            errors.append("must not contain dots")
        else:
            errors.append(regex_error(_LABEL_TEXT, _LABEL, "my-name", "123-abc"))
    return tuple(errors)


def dns1123_label(value: str) -> list[str]:
    return list(_dns1123_label(value))


@memoized(maxsize=16384)
def _dns1123_subdomain(value: str) -> tuple[str, ...]:
    errors = []
    if len(value.encode()) > 253:
        errors.append(max_length(253))
    if not _subdomain_re.fullmatch(value):
        errors.append(regex_error(_SUBDOMAIN_TEXT, _SUBDOMAIN, "example.com"))
    return tuple(errors)


def dns1123_subdomain(value: str) -> list[str]:
    return list(_dns1123_subdomain(value))


def dns1123_subdomain_caseless(value: str) -> list[str]:
    errors = []
    if len(value.encode()) > 253:
        errors.append(max_bytes(253))
    if not _subdomain_caseless_re.fullmatch(value):
        errors.append(regex_error(_SUBDOMAIN_CASELESS_TEXT, _SUBDOMAIN, "Example.com"))
    return errors


def dns1123_subdomain_underscore(value: str) -> list[str]:
    errors = []
    if len(value.encode()) > 253:
        errors.append(max_length(253))
    if not _subdomain_underscore_re.fullmatch(value):
        errors.append(regex_error(_SUBDOMAIN_UNDERSCORE_TEXT, _SUBDOMAIN_UNDERSCORE, "example.com"))
    return errors


def dns1035_label(value: str) -> list[str]:
    errors = []
    if len(value.encode()) > 63:
        errors.append(max_length(63))
    if not _label_1035_re.fullmatch(value):
        errors.append(regex_error(_LABEL_1035_TEXT, _LABEL_1035, "my-name", "abc-123"))
    return errors


def wildcard_dns1123_subdomain(value: str) -> list[str]:
    errors = []
    if len(value.encode()) > 253:
        errors.append(max_length(253))
    if not _wildcard_re.fullmatch(value):
        errors.append(regex_error(_WILDCARD_TEXT, _WILDCARD, "*.example.com"))
    return errors


@memoized(maxsize=16384)
def _qualified_name(value: str) -> tuple[str, ...]:
    errors: list[str] = []
    parts = value.split("/")
    if len(parts) == 1:
        name = parts[0]
    elif len(parts) == 2:
        prefix, name = parts
        if not prefix:
            errors.append("prefix part " + EMPTY)
        else:
            errors += [
                "prefix part " + text.replace("characters", "bytes", 1)
                if text.startswith("must be no more")
                else "prefix part " + text
                for text in _dns1123_subdomain(prefix)
            ]
    else:
        text = regex_error(_QUALIFIED_TEXT, _QUALIFIED, "MyName", "my.name", "123-abc")
        return (f"a valid label key {text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",)
    if not name:
        errors.append("name part " + EMPTY)
    elif len(name.encode()) > 63:
        errors.append("name part " + max_bytes(63))
    if not _qualified_re.fullmatch(name):
        errors.append("name part " + regex_error(_QUALIFIED_TEXT, _QUALIFIED, "MyName", "my.name", "123-abc"))
    return tuple(errors)


def qualified_name(value: str) -> list[str]:
    """Return a label key: a name with an optional `prefix/`."""
    return list(_qualified_name(value))


@memoized(maxsize=16384)
def _label_value(value: str) -> tuple[str, ...]:
    errors = []
    if len(value.encode()) > 63:
        errors.append(max_bytes(63))
    if value and not _qualified_re.fullmatch(value):
        errors.append(regex_error(_LABEL_VALUE_TEXT, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return tuple(errors)


def label_value(value: str) -> list[str]:
    return list(_label_value(value))


def path_segment_prefix(value: str) -> list[str]:
    return [f"may not contain '{part}'" for part in ("/", "%") if part in value]


def path_segment(value: str) -> list[str]:
    """Return a name that can stand in a URL path: the loosest rule of all."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return path_segment_prefix(value) if "/" in value or "%" in value else []


def port_number(value: int) -> list[str]:
    return [] if 1 <= value <= 65535 else [in_range(1, 65535)]


def port_name(value: str) -> list[str]:
    errors = []
    if len(value) > 15:
        errors.append(max_length(15))
    if not re.fullmatch("[-a-z0-9]+", value):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        errors.append("must contain at least one letter (a-z)")
    if "--" in value:
        errors.append("must not contain consecutive hyphens")
    if value and (value[0] == "-" or value[-1] == "-"):
        errors.append("must not begin or end with a hyphen")
    return errors


def user_id(value: int) -> list[str]:
    return [] if 0 <= value <= 2147483647 else [in_range(0, 2147483647)]


group_id = user_id


def percent(value: str) -> list[str]:
    if _percent_re.fullmatch(value):
        return []
    text = "a valid percent string must be a numeric string followed by an ending '%'"
    return [regex_error(text, "[0-9]+%", "1%", "93%")]


def http_header_name(value: str) -> list[str]:
    if _header_re.fullmatch(value):
        return []
    text = "a valid HTTP header must consist of alphanumeric characters or '-'"
    return [regex_error(text, "[-A-Za-z0-9]+", "X-Header-Name")]


def c_identifier(value: str) -> list[str]:
    if _c_identifier_re.fullmatch(value):
        return []
    text = (
        "a valid C identifier must start with alphabetic character or '_', "
        "followed by a string of alphanumeric characters or '_'"
    )
    return [regex_error(text, "[A-Za-z_][A-Za-z0-9_]*", "my_name", "MY_NAME", "MyName")]


def _no_parent_directory(value: str) -> list[str]:
    if value == ".":
        return ["must not be '.'"]
    if value == "..":
        return ["must not be '..'"]
    return ["must not start with '..'"] if value.startswith("..") else []


def env_var_name(value: str) -> list[str]:
    errors = []
    if not _env_re.fullmatch(value):
        text = (
            "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', "
            "and must not start with a digit"
        )
        errors.append(regex_error(text, "[-._a-zA-Z][-._a-zA-Z0-9]*", "my.env-name", "MY_ENV.NAME", "MyEnvName1"))
    return errors + _no_parent_directory(value)


def relaxed_env_var_name(value: str) -> list[str]:
    if not value:
        return ["environment variable name " + EMPTY]
    if any(char == "=" or not " " <= char <= "~" for char in value):
        return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]
    return []


def config_map_key(value: str) -> list[str]:
    errors = []
    if len(value.encode()) > 253:
        errors.append(max_length(253))
    if not _config_key_re.fullmatch(value):
        text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        errors.append(regex_error(text, "[-._a-zA-Z0-9]+", "key.name", "KEY_NAME", "key-name"))
    return errors + _no_parent_directory(value)


# -- addresses ----------------------------------------------------------------------------------------------------

IP_TEXT = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
CIDR_TEXT = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


@memoized(maxsize=4096)
def parse_ip(value: str) -> IPv4Address | IPv6Address | None:
    """Return the address, without a zone; None if it is none (leading zeros included)."""
    try:
        return ip_address(value) if "%" not in value else None
    except ValueError:
        return None


def ip(value: str) -> list[str]:
    """Validate an IP address strictly: valid and canonical, as new API fields require."""
    parsed = parse_ip(value)
    if parsed is None:
        relaxed = re.fullmatch(r"\d+\.\d+\.\d+\.\d+", value)
        if relaxed and all(int(octet) <= 255 for octet in value.split(".")):
            return ["must not have leading 0s"]
        return [IP_TEXT]
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return ["must not be an IPv4-mapped IPv6 address"]
    canonical = str(parsed)
    return [] if canonical == value else [f'must be in canonical form ("{canonical}")']


def ip_legacy(value: str) -> list[str]:
    """Validate an IP address as old API fields do: no leading zeros, not IPv4-mapped, any spelling."""
    return [text for text in ip(value) if not text.startswith("must be in canonical form")]


def cidr(value: str) -> list[str]:
    """Validate a CIDR strictly: a network address in canonical form."""
    address, slash, prefix = value.partition("/")
    if not slash or not prefix.isdigit() or (len(prefix) > 1 and prefix[0] == "0") or parse_ip(address) is None:
        return [CIDR_TEXT]
    try:
        network = ip_network(value, strict=False)
    except ValueError:
        return [CIDR_TEXT]
    parsed = parse_ip(address)
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return ["must not have an IPv4-mapped IPv6 address"]
    if network.network_address != parsed:
        return ["must not have bits set beyond the prefix length"]
    return [] if str(network) == value else [f'must be in canonical form ("{network}")']


def http_path_chars(value: str) -> bool:
    return _http_path_re.fullmatch(value) is not None
