"""Probes and lifecycle hooks: exactly one handler each, and the ranges of their numbers."""

from __future__ import annotations

from setpoint.kinds.internal_form import as_json
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required
from setpoint.meta.names import http_header_name, port_name, port_number
from setpoint.meta.objects import ObjView

NOT_NEGATIVE = "must be greater than or equal to 0"
_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_ABOVE_MIN, _BELOW_MAX = (f"SIGRTMIN+{n}" for n in range(1, 16)), (f"SIGRTMAX-{n}" for n in range(1, 15))
_SIGNALS = tuple(
    sorted(
        (
            "SIGABRT",
            "SIGALRM",
            "SIGBUS",
            "SIGCHLD",
            "SIGCLD",
            "SIGCONT",
            "SIGFPE",
            "SIGHUP",
            "SIGILL",
            "SIGINT",
            "SIGIO",
            "SIGIOT",
            "SIGKILL",
            "SIGPIPE",
            "SIGPOLL",
            "SIGPROF",
            "SIGPWR",
            "SIGQUIT",
            "SIGSEGV",
            "SIGSTKFLT",
            "SIGSTOP",
            "SIGSYS",
            "SIGTERM",
            "SIGTRAP",
            "SIGTSTP",
            "SIGTTIN",
            "SIGTTOU",
            "SIGURG",
            "SIGUSR1",
            "SIGUSR2",
            "SIGVTALRM",
            "SIGWINCH",
            "SIGXCPU",
            "SIGXFSZ",
            "SIGRTMIN",
            "SIGRTMAX",
            *_ABOVE_MIN,
            *_BELOW_MAX,
        )
    )
)
_WINDOWS_SIGNALS = ("SIGKILL", "SIGTERM")


def validate_probes(container: ObjView, grace: int | None, path: str, errs: Errors) -> None:
    probe = container.get("livenessProbe")
    if probe is not None:
        _validate_probe(probe, grace, f"{path}.livenessProbe", errs)
        _validate_single_success(probe, f"{path}.livenessProbe", errs)
    probe = container.get("readinessProbe")
    if probe is not None:
        _validate_probe(probe, grace, f"{path}.readinessProbe", errs)
        seconds = probe.get("terminationGracePeriodSeconds")
        if seconds is not None:
            at = f"{path}.readinessProbe.terminationGracePeriodSeconds"
            errs.append(invalid(at, seconds, "must not be set for readinessProbes"))
    probe = container.get("startupProbe")
    if probe is not None:
        _validate_probe(probe, grace, f"{path}.startupProbe", errs)
        _validate_single_success(probe, f"{path}.startupProbe", errs)


def _validate_single_success(probe: ObjView, path: str, errs: Errors) -> None:
    if probe.get("successThreshold", 0) != 1:
        errs.append(invalid(f"{path}.successThreshold", probe.get("successThreshold", 0), "must be 1"))


def _validate_probe(probe: ObjView, grace: int | None, path: str, errs: Errors) -> None:
    _validate_handler(probe, _PROBE_HANDLERS, grace, path, errs)
    for name in _NUMBERS:
        if probe.get(name, 0) < 0:
            errs.append(invalid(f"{path}.{name}", probe[name], NOT_NEGATIVE))
    seconds = probe.get("terminationGracePeriodSeconds")
    if seconds is not None and seconds <= 0:
        errs.append(invalid(f"{path}.terminationGracePeriodSeconds", seconds, "must be greater than 0"))


def _validate_handler(holder: ObjView, kinds: tuple[str, ...], grace: int | None, path: str, errs: Errors) -> None:
    found = False
    for kind in kinds:
        action = holder.get(kind)
        if action is None:
            continue
        if found:
            errs.append(forbidden(f"{path}.{kind}", "may not specify more than 1 handler type"))
            continue
        found = True
        at = f"{path}.{kind}"
        if kind == "httpGet":
            _validate_http_get(action, at, errs)
        elif kind == "exec":
            if not action.get("command"):
                errs.append(required(f"{at}.command", ""))
        elif kind == "sleep":
            seconds = action.get("seconds", 0)
            if grace is not None and not 0 <= seconds <= grace:
                text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                errs.append(invalid(at, seconds, text))
        else:
            _validate_port(action.get("port", 0), f"{at}.port", errs)
            if action.get("mode", "TLS") not in ("Plaintext", "TLS"):
                errs.append(not_supported(f"{at}.mode", action["mode"], ("Plaintext", "TLS")))
    if not found:
        errs.append(required(path, "must specify a handler type"))


def _validate_http_get(action: ObjView, path: str, errs: Errors) -> None:
    if not action.get("path"):
        errs.append(required(f"{path}.path", ""))
    _validate_port(action.get("port", 0), f"{path}.port", errs)
    scheme = action.get("scheme", "")
    if scheme not in ("HTTP", "HTTPS"):
        errs.append(not_supported(f"{path}.scheme", scheme, ("HTTP", "HTTPS")))
    for header in action.get("httpHeaders", ()):
        for text in http_header_name(header.get("name", "")):
            errs.append(invalid(f"{path}.httpHeaders", header.get("name", ""), text))
    protocol = action.get("protocol")
    if protocol is not None:
        if protocol not in ("HTTP1", "HTTP2"):
            errs.append(not_supported(f"{path}.protocol", protocol, ("HTTP1", "HTTP2")))
        elif protocol == "HTTP2" and scheme != "HTTP":
            errs.append(invalid(f"{path}.protocol", protocol, "is only supported with HTTP (H2C)"))
        elif protocol == "HTTP2" and action.get("host"):
            errs.append(invalid(f"{path}.host", action["host"], 'must be empty when `protocol` is "HTTP2"'))


def _validate_port(port: int | str, path: str, errs: Errors) -> None:
    if isinstance(port, str):
        for text in port_name(port):
            errs.append(invalid(path, port, text))
    elif not 0 < port < 65536:
        for text in port_number(port):
            errs.append(invalid(path, port, text))


def validate_lifecycle(lifecycle: ObjView, grace: int | None, path: str, errs: Errors, *, os: ObjView | None) -> None:
    for name in ("postStart", "preStop"):
        if name in lifecycle:
            _validate_handler(lifecycle[name], _HOOK_HANDLERS, grace, f"{path}.{name}", errs)
    signal = lifecycle.get("stopSignal")
    if signal is not None:
        if os is None:
            errs.append(forbidden(f"{path}.stopSignal", "may not be set for containers with empty `spec.os.name`"))
        else:
            known = {"windows": _WINDOWS_SIGNALS, "linux": _SIGNALS}.get(os.get("name", ""))
            if known is not None and signal not in known:
                errs.append(not_supported(f"{path}.stopSignal", as_json(signal), known))
