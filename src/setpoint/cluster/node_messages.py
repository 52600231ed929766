"""HTTP requests and responses of the kubelet's API."""

from __future__ import annotations

from urllib.parse import unquote

from setpoint.apiserver.request_context import parse_query
from setpoint.node.kubelet_api.interface import (
    NodeRequest,
    NodeResponse,
    StreamedResponse,
    UpgradedResponse,
)
from setpoint.wire.forwarding import stream_pieces
from setpoint.wire.message import HttpAnswer, Request, Response, StreamResponse, UpgradeResponse


def node_request(node: str, request: Request) -> NodeRequest:
    query = parse_query(request.query)
    return NodeRequest(node, request.method, unquote(request.path), query, request.headers, request.repeated)


def http_answer(answer: NodeResponse) -> HttpAnswer:
    if isinstance(answer, UpgradedResponse):
        return UpgradeResponse(answer.headers, answer.run)
    if isinstance(answer, StreamedResponse):
        return StreamResponse(200, answer.headers, stream_pieces(answer.chunks))
    return Response(answer.status, answer.body, answer.headers)
