"""Serialized principals of requests that a broker forwards to the controller (KIP-590)."""

from __future__ import annotations

from struct import Struct

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.acl import ANONYMOUS, TokenPrincipal, parted, principal_of
from ottla.protocol.codec import read_message, write_message
from ottla.protocol.messages.default_principal import DefaultPrincipalData

_VERSION = Struct(">h")


def pack_principal(principal: str) -> bytes:
    """Serialize a principal "User:name"."""
    kind, name = parted(principal)
    data = bytearray(_VERSION.pack(0))
    by_token = isinstance(principal, TokenPrincipal)
    write_message(DefaultPrincipalData(type_=kind, name=name, token_authenticated=by_token), 0, data)
    return bytes(data)


def unpack_principal(data: bytes | None) -> str:
    """Deserialize a principal of `pack_principal`; anonymous without data.

    Raises KafkaError PRINCIPAL_DESERIALIZATION_FAILURE.
    """
    if data is None:
        return ANONYMOUS
    try:
        if data[: _VERSION.size] != _VERSION.pack(0):
            raise ProtocolError("unsupported version of a serialized principal")
        message, _ = read_message(DefaultPrincipalData, 0, data, _VERSION.size, len(data))
    except ProtocolError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from error
    principal = principal_of(message.type_, message.name)
    return TokenPrincipal(principal) if message.token_authenticated else principal
