"""Znodes of delegation tokens (KIP-48): one for each, without its password, which is the HMAC of its id."""

from __future__ import annotations

from ottla.common.errors import ProtocolError
from ottla.common.kafka.delegation_token import DelegationToken
from ottla.protocol.znodes.fields import MAX_INT64, Fields, encode
from ottla.protocol.znodes.paths import desanitized, sanitized


def encode_token(token: DelegationToken) -> bytes:
    """Encode version 3; principals are sanitized as in paths."""
    return encode(
        {
            "version": 3,
            "owner": sanitized(token.owner),
            "tokenRequester": sanitized(token.requester),
            "renewers": [sanitized(each) for each in token.renewers],
            "issueTimestamp": token.issue_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expiry_ms,
            "tokenId": token.token_id,
        }
    )


def decode_token(path: str, data: bytes) -> DelegationToken:
    """Decode versions 1 to 3: the requester since 3 (KIP-373), before that it is the owner.

    Raises ProtocolError, also for a principal without a type and for a token with another id than `path`.
    """
    fields = Fields.parsed(path, data, range(1, 4))
    asked = "tokenRequester" if fields.has("tokenRequester") else "owner"
    token = DelegationToken(
        token_id=fields.text("tokenId"),
        owner=_principal(path, fields.text("owner")),
        requester=_principal(path, fields.text(asked)),
        renewers=tuple(_principal(path, each) for each in fields.texts("renewers")),
        issue_ms=fields.number("issueTimestamp", 0, MAX_INT64),
        max_ms=fields.number("maxTimestamp", 0, MAX_INT64),
        expiry_ms=fields.number("expiryTimestamp", 0, MAX_INT64),
    )
    if token.token_id != path.rpartition("/")[2]:
        raise fields.wrong("tokenId")
    return token


def _principal(path: str, text: str) -> str:
    principal = desanitized(path, text)
    if principal is None or ":" not in principal:
        raise ProtocolError(f"znode {path} names an invalid principal")
    return principal
