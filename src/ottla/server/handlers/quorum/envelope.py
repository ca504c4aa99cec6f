"""Envelope (58): version 0, on the controller's listener. A client's request that a broker hands on (KIP-590).

The request inside goes through the dispatcher as if its client had sent it here, with the client's principal and
address. Who is not the active controller says so for the envelope, so that the broker asks the next one.
"""

from __future__ import annotations

import socket

from ottla.common.acl import AclOperation, ResourceType
from ottla.common.endpoint import peer_host
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.protocol.registry import ApiKey
from ottla.server.api import DeclaredApi, Listeners, bare_error
from ottla.server.authorization import Need
from ottla.server.decisions import DecidingContext
from ottla.server.enveloped_channel import EnvelopedChannel, enveloped
from ottla.server.principals import unpack_principal
from ottla.server.request import Request


def handle(context: DecidingContext, request: Request, message: EnvelopeRequest) -> EnvelopeResponse | None:
    """Serve the request inside."""
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


ENVELOPE = DeclaredApi(
    ApiKey.ENVELOPE,
    handle,
    bare_error(EnvelopeResponse),
    listeners=Listeners.CONTROLLER,
    needs=Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
    throttled=False,
)
