"""The messages of CRI, and the tool that compares them with the published definition."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from setpoint.node.cri.enums import STOP_SIGNALS
from setpoint.node.cri.messages import CLASSES, METHODS, SUBSCRIBE, TaskEvent

ROOT = Path(__file__).resolve().parents[4]
DEFINITION = """
// A comment with a message X { string y = 1; }
package runtime.v1;
service RuntimeService {
    rpc Version(VersionRequest) returns (VersionResponse) {}
    rpc GetContainerEvents(GetEventsRequest) returns (stream ContainerEventResponse) {}
}
/* Another
   comment. */
message VersionRequest { string version = 1; }
message VersionResponse {
    enum Kind { A = 0; B = 1; }
    repeated string names = 1 [deprecated=true];
    map<string, Inner> inners = 2;
    Kind kind = 3;
    Inner inner = 4;
}
message Inner{}
"""


@pytest.fixture(scope="module")
def tool() -> Any:
    name = "check_cri_messages"
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_sandbox_config_survives_a_round_trip() -> None:
    request = METHODS["RunPodSandbox"].request
    config = {
        "metadata": {"name": "a", "uid": "u", "namespace": "n", "attempt": 3},
        "labels": {"x": "y"},
        "linux": {
            "sysctls": {"net.core.somaxconn": "1"},
            "security_context": {
                "run_as_user": {"value": 0},
                "supplemental_groups": [1, 65534],
                "namespace_options": {"network": 2, "userns_options": {"mode": 0, "uids": [{"length": 65536}]}},
            },
        },
    }
    read = request.FromString(request(config=config).SerializeToString()).config
    security = read.linux.security_context
    assert (read.metadata.attempt, dict(read.labels), list(security.supplemental_groups)) == (3, {"x": "y"}, [1, 65534])
    assert security.HasField("run_as_user"), "a user of zero is not the same as no user"
    assert not security.HasField("run_as_group")
    assert security.namespace_options.userns_options.uids[0].length == 65536


def test_fields_that_are_none_are_absent() -> None:
    assert CLASSES["ContainerConfig"](working_dir=None, linux=None).SerializeToString() == b""


def test_every_method_has_its_messages_and_a_service() -> None:
    assert METHODS["PullImage"].path == "/runtime.v1.ImageService/PullImage"
    assert METHODS["Status"].path == "/runtime.v1.RuntimeService/Status"
    assert METHODS["Status"].response.DESCRIPTOR.name == "StatusResponse"


def test_events_of_tasks_are_read_whatever_their_second_field_is() -> None:
    start = b"\x0a\x02ab\x10\x05"  # the second field of a start is a number
    assert TaskEvent.FromString(start).container_id == "ab"
    envelope = SUBSCRIBE.response(topic="/tasks/start", event={"type_url": "t", "value": start})
    assert SUBSCRIBE.response.FromString(envelope.SerializeToString()).event.value == start


@pytest.mark.parametrize(
    ("name", "number"), [("SIGTERM", 23), ("SIGRTMIN+1", 36), ("SIGRTMAX-14", 51), ("SIGRTMAX", 65)]
)
def test_stop_signals_have_the_numbers_of_cri(name: str, number: int) -> None:
    assert STOP_SIGNALS[name] == number
    assert len(STOP_SIGNALS) == 65


def test_the_definition_is_parsed(tool: Any) -> None:
    defined = tool.parse_definition(DEFINITION)
    assert list(defined.messages) == ["VersionRequest", "VersionResponse", "Inner"]
    assert defined.enums == {"Kind": {"A": 0, "B": 1}}
    assert defined.methods["/runtime.v1.RuntimeService/GetContainerEvents"] == (
        "GetEventsRequest",
        "ContainerEventResponse",
    )


def test_differences_from_the_definition_are_found(tool: Any) -> None:
    right = "VersionResponse: names 1 string*, inners 2 string>Inner, kind 3 int32\nInner:"
    defined = tool.parse_definition(DEFINITION)
    version = {"Version": METHODS["Version"]}

    def messages(table: str) -> list[str]:
        return [one for one in tool.differences(table, defined, version, {}) if not one.startswith("the signals")]

    assert messages(right) == []
    assert list(tool.omitted_fields(right, defined)) == ["VersionResponse.inner"]
    for wrong in ("names 2 string*", "names 1 string", "kind 3 string", "inners 2 string>string", "none 9 string"):
        assert len(messages(f"VersionResponse: {wrong}")) == 1, wrong
    assert messages("Other: a 1 string") == ["Other is not defined"]
    other = {"Status": METHODS["Status"]}
    assert any("/Status has the messages" in one for one in tool.differences(right, defined, other, {}))
