"""Envelope (58): version 0, on the controller's listener. Contains a client's request forwarded by a broker (KIP-590).

The inner request passes the dispatcher as if its client had sent it here, with the client's principal and address. If
this node is not the active controller the envelope fails, so that the broker tries another one.
"""

from __future__ import annotations

import socket

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.platform.endpoint import peer_host
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.registry import ApiKey
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import DecidingContext
from ottla.server.requests.enveloped_channel import EnvelopedChannel, enveloped
from ottla.server.requests.principals import unpack_principal
from ottla.server.requests.request import Request


def handle(context: DecidingContext, request: Request, message: EnvelopeRequest) -> EnvelopeResponse | None:
    """Serve the inner request."""
    if not context.decisions.active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    data = bytearray(message.request_data)
    if not request.dispatcher.may_be_forwarded(data):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    principal = unpack_principal(message.request_principal)
    channel = EnvelopedChannel(request, _address(bytes(message.client_host_address)), principal)
    parts = request.dispatcher.handle(channel, data, 0, len(data))
    return None if parts is None else enveloped(parts)


def _address(packed: bytes) -> str:
    try:
        return peer_host(socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed))
    except ValueError:
        return ""


ENVELOPE = SchemaApi(
    ApiKey.ENVELOPE,
    handle,
    bare_error(EnvelopeResponse),
    needs=RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
