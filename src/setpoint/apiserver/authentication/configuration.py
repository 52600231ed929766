"""AuthenticationConfiguration: the file that configures token issuers and anonymous requests."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from setpoint.apiserver.authentication.claims import InvalidExpression, compile_expression, uses_claim
from setpoint.apiserver.config_files import SWITCH, TEXT, Explicit, FileProblem, document, many, read_config, struct
from setpoint.kinds.shared_names import validate_domain_prefixed_path
from setpoint.meta.cel import Program
from setpoint.meta.field import Errors, duplicate, internal, invalid, required, too_many
from setpoint.meta.objects import Obj

_MAX_ISSUERS = 64
_PREFIXED = struct("v1.PrefixedClaimOrExpression", claim=TEXT, prefix=Explicit(TEXT), expression=TEXT)
_CONFIGURATION = document(
    "v1.AuthenticationConfiguration",
    jwt=many(
        struct(
            "v1.JWTAuthenticator",
            issuer=struct(
                "v1.Issuer",
                url=TEXT,
                discoveryURL=TEXT,
                certificateAuthority=TEXT,
                audiences=many(TEXT),
                audienceMatchPolicy=TEXT,
                egressSelectorType=TEXT,
            ),
            claimValidationRules=many(
                struct("v1.ClaimValidationRule", claim=TEXT, requiredValue=TEXT, expression=TEXT, message=TEXT)
            ),
            claimMappings=struct(
                "v1.ClaimMappings",
                username=_PREFIXED,
                groups=_PREFIXED,
                uid=struct("v1.ClaimOrExpression", claim=TEXT, expression=TEXT),
                extra=many(struct("v1.ExtraMapping", key=TEXT, valueExpression=TEXT)),
            ),
            userValidationRules=many(struct("v1.UserValidationRule", expression=TEXT, message=TEXT)),
        )
    ),
    anonymous=Explicit(
        struct(
            "v1.AnonymousAuthConfig",
            enabled=SWITCH,
            conditions=many(struct("v1.AnonymousAuthCondition", path=TEXT)),
        )
    ),
)
_KINDS = {
    (f"apiserver.config.k8s.io/{version}", "AuthenticationConfiguration"): _CONFIGURATION
    for version in ("v1", "v1beta1", "v1alpha1")
}
_NO_CERTIFICATES = "data does not contain any valid RSA or ECDSA certificates"
_UNVERIFIED = (
    "claims.email_verified must be used in claimMappings.username.expression or "
    "claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in "
    "claimMappings.username.expression"
)


def read_authentication(data: bytes) -> Obj:
    """Read the file. Raises FileProblem."""
    if not data:
        raise FileProblem("empty config data")
    return read_config(data, _KINDS)


def check_authentication(config: Obj, disallowed_issuers: Sequence[str] = ()) -> Errors:
    """Return the errors of a configuration. `disallowed_issuers` are the issuers of service account tokens."""
    errs: Errors = []
    authenticators: list[Obj] = config.get("jwt") or []
    if len(authenticators) > _MAX_ISSUERS:
        return [too_many("jwt", len(authenticators), _MAX_ISSUERS)]
    issuers: set[str] = set()
    discoveries: set[str] = set()
    for at, authenticator in enumerate(authenticators):
        path = f"jwt[{at}]"
        _check_authenticator(authenticator, path, disallowed_issuers, errs)
        issuer = authenticator.get("issuer") or {}
        url, discovery = issuer.get("url", ""), issuer.get("discoveryURL", "")
        if url in issuers:
            errs.append(duplicate(f"{path}.issuer.url", url))
        issuers.add(url)
        if discovery and discovery in discoveries:
            errs.append(duplicate(f"{path}.issuer.discoveryURL", discovery))
        discoveries.add(discovery)
    anonymous = config.get("anonymous")
    if anonymous is not None and anonymous.get("conditions") and not anonymous.get("enabled"):
        text = "enabled should be set to true when conditions are defined"
        errs.append(invalid("anonymous.conditions", anonymous["conditions"], text))
    return errs


def _check_authenticator(authenticator: Obj, path: str, disallowed: Sequence[str], errs: Errors) -> None:
    _check_issuer(authenticator.get("issuer") or {}, f"{path}.issuer", disallowed, errs)
    rules = _check_rules(authenticator, f"{path}.claimValidationRules", errs)
    mappings = authenticator.get("claimMappings") or {}
    _check_mappings(mappings, f"{path}.claimMappings", rules, errs)
    _check_user_rules(authenticator.get("userValidationRules") or [], f"{path}.userValidationRules", errs)


def _check_issuer(issuer: Obj, path: str, disallowed: Sequence[str], errs: Errors) -> None:
    url, discovery = issuer.get("url", ""), issuer.get("discoveryURL", "")
    if url:
        _check_url(url, f"{path}.url", disallowed, errs)
    else:
        errs.append(required(f"{path}.url"))
    if discovery:
        if url and url.rstrip("/") == discovery.rstrip("/"):
            errs.append(invalid(f"{path}.discoveryURL", discovery, "discoveryURL must be different from URL"))
        _check_url(discovery, f"{path}.discoveryURL", (), errs)
    _check_audiences(issuer, path, errs)
    authority = issuer.get("certificateAuthority", "")
    problem = _authority_problem(authority) if authority else ""
    if problem:
        errs.append(invalid(f"{path}.certificateAuthority", "<omitted>", problem))
    egress = issuer.get("egressSelectorType", "")
    if egress:
        text = "egress selector must be either controlplane or cluster"
        if egress in ("controlplane", "cluster"):
            text = f'oidc: egress lookup required with egress selector type "{egress}"'
        errs.append(invalid(f"{path}.egressSelectorType", egress, text))


def _check_url(text: str, path: str, disallowed: Sequence[str], errs: Errors) -> None:
    if text in disallowed:
        shown = " ".join(sorted(disallowed))
        errs.append(invalid(path, text, f"URL must not overlap with disallowed issuers: [{shown}]"))
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError as error:
        errs.append(invalid(path, text, f'parse "{text}": {error}'))
        return
    if url.scheme != "https":
        errs.append(invalid(path, text, "URL scheme must be https"))
    if "@" in url.netloc:
        errs.append(invalid(path, text, "URL must not contain a username or password"))
    if url.query:
        errs.append(invalid(path, text, "URL must not contain a query"))
    if url.fragment:
        errs.append(invalid(path, text, "URL must not contain a fragment"))


def _check_audiences(issuer: Obj, path: str, errs: Errors) -> None:
    audiences, policy = issuer.get("audiences") or [], issuer.get("audienceMatchPolicy", "")
    if not audiences:
        errs.append(required(f"{path}.audiences", f"at least one {path}.audiences is required"))
        return
    for at, audience in enumerate(audiences):
        if not audience:
            errs.append(required(f"{path}.audiences[{at}]"))
        if audience in audiences[:at]:
            errs.append(duplicate(f"{path}.audiences[{at}]", audience))
    where = f"{path}.audienceMatchPolicy"
    if len(audiences) > 1 and policy != "MatchAny":
        errs.append(invalid(where, policy, "audienceMatchPolicy must be MatchAny for multiple audiences"))
    if len(audiences) == 1 and policy not in ("", "MatchAny"):
        errs.append(invalid(where, policy, "audienceMatchPolicy must be empty or MatchAny for single audience"))


def _authority_problem(text: str) -> str:
    from cryptography import x509

    try:
        return "" if x509.load_pem_x509_certificates(text.encode()) else _NO_CERTIFICATES
    except ValueError:
        return _NO_CERTIFICATES


def _compile(text: str, variable: str, path: str, errs: Errors, *, rule: bool = False) -> Program | None:
    try:
        return compile_expression(text, variable, rule=rule)
    except InvalidExpression as problem:
        if str(problem).startswith("program instantiation failed"):
            errs.append(internal(path, str(problem)))
        else:
            errs.append(invalid(path, text, str(problem)))
        return None


def _check_rules(authenticator: Obj, path: str, errs: Errors) -> list[Program]:
    """Check the claim validation rules, and return the programs of those that are expressions."""
    claims: set[str] = set()
    expressions: set[str] = set()
    programs: list[Program] = []
    for at, rule in enumerate(authenticator.get("claimValidationRules") or []):
        here = f"{path}[{at}]"
        claim, expression = rule.get("claim", ""), rule.get("expression", "")
        if claim and expression:
            errs.append(invalid(here, claim, "claim and expression can't both be set"))
        elif not claim and not expression:
            errs.append(required(here, "claim or expression is required"))
        elif claim:
            if rule.get("message"):
                errs.append(invalid(f"{here}.message", rule["message"], "may not be specified when claim is set"))
            if claim in claims:
                errs.append(duplicate(f"{here}.claim", claim))
            claims.add(claim)
        else:
            if rule.get("requiredValue"):
                text = "may not be specified when expression is set"
                errs.append(invalid(f"{here}.requiredValue", rule["requiredValue"], text))
            if expression in expressions:
                errs.append(duplicate(f"{here}.expression", expression))
                continue
            expressions.add(expression)
            program = _compile(expression, "claims", f"{here}.expression", errs, rule=True)
            if program is not None:
                programs.append(program)
    return programs


def _check_mappings(mappings: Obj, path: str, rules: list[Program], errs: Errors) -> None:
    username = mappings.get("username") or {}
    named = _check_prefixed(username, f"{path}.username", True, errs)
    _check_prefixed(mappings.get("groups") or {}, f"{path}.groups", False, errs)
    uid = mappings.get("uid") or {}
    if uid.get("claim") and uid.get("expression"):
        errs.append(invalid(f"{path}.uid", "", "claim and expression can't both be set"))
    elif uid.get("expression"):
        _compile(uid["expression"], "claims", f"{path}.uid.expression", errs)
    extra = _check_extra(mappings.get("extra") or [], f"{path}.extra", errs)
    checked = [*rules, *extra, *([named] if named is not None else [])]
    if named is not None and uses_claim(named, "email") and not any(uses_claim(p, "email_verified") for p in checked):
        errs.append(invalid(f"{path}.username.expression", username["expression"], _UNVERIFIED))


def _check_prefixed(mapping: Obj, path: str, needed: bool, errs: Errors) -> Program | None:
    claim, expression = mapping.get("claim", ""), mapping.get("expression", "")
    if claim and expression:
        errs.append(invalid(path, "", "claim and expression can't both be set"))
    elif not claim and not expression:
        if needed:
            errs.append(required(path, "claim or expression is required"))
    elif expression:
        count = len(errs)
        if "prefix" in mapping:
            errs.append(invalid(f"{path}.prefix", mapping["prefix"], "may not be specified when expression is set"))
        program = _compile(expression, "claims", f"{path}.expression", errs)
        return program if len(errs) == count else None
    elif "prefix" not in mapping:
        errs.append(
            required(
                f"{path}.prefix",
                "prefix is required when claim is set. It can be set to an empty string to disable prefixing",
            )
        )
    return None


def _check_extra(extra: list[Obj], path: str, errs: Errors) -> list[Program]:
    keys: set[str] = set()
    programs: list[Program] = []
    for at, mapping in enumerate(extra):
        here, key = f"{path}[{at}]", mapping.get("key", "")
        validate_domain_prefixed_path(key, f"{here}.key", errs)
        if key != key.lower():
            errs.append(invalid(f"{here}.key", key, "must be lowercase"))
        domain, slash, _ = key.partition("/")
        if slash and f".{domain}".endswith((".kubernetes.io", ".k8s.io")):
            text = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"
            errs.append(invalid(f"{here}.key", key, text))
        if key in keys:
            errs.append(duplicate(f"{here}.key", key))
            continue
        keys.add(key)
        if not mapping.get("valueExpression"):
            errs.append(required(f"{here}.valueExpression"))
            continue
        program = _compile(mapping["valueExpression"], "claims", f"{here}.valueExpression", errs)
        if program is not None:
            programs.append(program)
    return programs


def _check_user_rules(rules: list[Obj], path: str, errs: Errors) -> None:
    expressions: set[str] = set()
    for at, rule in enumerate(rules):
        here, expression = f"{path}[{at}].expression", rule.get("expression", "")
        if not expression:
            errs.append(required(here))
        elif expression in expressions:
            errs.append(duplicate(here, expression))
        else:
            expressions.add(expression)
            _compile(expression, "user", here, errs, rule=True)
