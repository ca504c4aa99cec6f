"""Create-, Renew-, Expire- and DescribeDelegationToken (KIP-48, KIP-373, KIP-900).

Checks, codes and their order are those of Apache Kafka 4.x. A token belongs to its owner, its requester and its
renewers. Stricter than Kafka: an owner is a user, as renewers are, since clients authenticate as the owner. Tokens and
the names in them are bounded (`metadata.bounds`, `common.config.config_keys_bounds`), since users without permissions
may create them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.common.config.config_keys_bounds import MAX_TOKENS, MAX_TOKENS_PER_OWNER
from ottla.common.config.feature_levels import DELEGATION_TOKENS
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import USER, parted, principal_of
from ottla.common.kafka.delegation_token import DelegationToken
from ottla.common.kafka.ids import uuid_to_string
from ottla.controller.result import ControllerContext, ControllerResult
from ottla.metadata.bounds import MAX_RENEWERS, MAX_RENEWERS_BYTES, is_too_long
from ottla.metadata.image import MetadataImage, metadata_level
from ottla.metadata.records import versioned
from ottla.metadata.snapshot import delegation_token_record
from ottla.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.protocol.messages.metadata_records import RemoveDelegationTokenRecord
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.security.sasl.tokens import hmac_of

MAX_LIFETIME, RENEW_TIME = "delegation.token.max.lifetime.ms", "delegation.token.expiry.time.ms"


def owner_of(request: CreateDelegationTokenRequest, requester: str) -> str:
    """Return the owner of the new token: the requester, unless the request names another user."""
    if not request.owner_principal_name:
        return requester
    return principal_of(request.owner_principal_type or "", request.owner_principal_name)


def refused(code: ErrorCode, owner: str, requester: str) -> CreateDelegationTokenResponse:
    """Return the response to a CreateDelegationToken that failed."""
    response = _created(owner, requester)
    response.error_code = code
    return response


def handle_create_delegation_token(
    image: MetadataImage, request: CreateDelegationTokenRequest, requester: str, context: ControllerContext
) -> ControllerResult[CreateDelegationTokenResponse]:
    """Create a token for `requester`, or for the owner that the request names."""
    owner = owner_of(request, requester)
    renewers = tuple(principal_of(each.principal_type, each.principal_name) for each in request.renewers)
    if any(parted(principal)[0] != USER for principal in (owner, *renewers)):
        return ControllerResult([], refused(ErrorCode.INVALID_PRINCIPAL_TYPE, owner, requester))
    problem = _problem(image, context)
    if problem is ErrorCode.NONE and _is_over_bounds(image, owner, renewers, context):
        problem = ErrorCode.POLICY_VIOLATION
    if problem is not ErrorCode.NONE:
        return ControllerResult([], refused(problem, owner, requester))
    lifetime_ms = context.config.get_int(MAX_LIFETIME)
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    now_ms = context.time_ms
    max_ms = now_ms + lifetime_ms
    expiry_ms = min(max_ms, now_ms + context.config.get_int(RENEW_TIME))
    token = DelegationToken(uuid_to_string(context.new_uuid()), owner, requester, renewers, now_ms, max_ms, expiry_ms)
    response = _created(owner, requester, token, context.tokens.hmac_of(token.token_id))
    return ControllerResult([versioned(delegation_token_record(token))], response)


def _is_over_bounds(image: MetadataImage, owner: str, renewers: Sequence[str], context: ControllerContext) -> bool:
    tokens, limit = image.delegation_tokens, context.config.get_int(MAX_TOKENS_PER_OWNER)
    return (
        len(renewers) > MAX_RENEWERS
        or is_too_long(owner)
        or sum(len(renewer.encode()) for renewer in renewers) > MAX_RENEWERS_BYTES
        or len(tokens) >= context.config.get_int(MAX_TOKENS)
        or (len(tokens) >= limit and sum(token.owner == owner for token in tokens.values()) >= limit)
    )


def _created(
    owner: str, requester: str, token: DelegationToken | None = None, token_hmac: bytes = b""
) -> CreateDelegationTokenResponse:
    (owner_type, owner_name), (requester_type, requester_name) = parted(owner), parted(requester)
    return CreateDelegationTokenResponse(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=-1 if token is None else token.issue_ms,
        expiry_timestamp_ms=-1 if token is None else token.expiry_ms,
        max_timestamp_ms=-1 if token is None else token.max_ms,
        token_id="" if token is None else token.token_id,
        hmac=token_hmac,
    )


def _problem(image: MetadataImage, context: ControllerContext) -> ErrorCode:
    """Return the error code if delegation tokens are not available, or NONE."""
    if not context.tokens.enabled:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    return ErrorCode.NONE if metadata_level(image) >= DELEGATION_TOKENS else ErrorCode.UNSUPPORTED_VERSION


def _own_token(image: MetadataImage, token_hmac: bytes, principal: str, context: ControllerContext) -> DelegationToken:
    """Return the token of a request; raises KafkaError."""
    problem = _problem(image, context)
    if problem is not ErrorCode.NONE:
        raise KafkaError(problem)
    token = context.tokens.find(image.delegation_tokens, token_hmac)
    if token is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if not token.belongs_to(principal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    return token


def handle_renew_delegation_token(
    image: MetadataImage, request: RenewDelegationTokenRequest, principal: str, context: ControllerContext
) -> ControllerResult[RenewDelegationTokenResponse]:
    """Extend a token, at most until its maximum timestamp. Raises KafkaError."""
    token = _own_token(image, request.hmac, principal, context)
    if token.is_over(context.time_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    period_ms = context.config.get_int(RENEW_TIME)
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    token = token._replace(expiry_ms=min(token.max_ms, context.time_ms + period_ms))
    response = RenewDelegationTokenResponse(expiry_timestamp_ms=token.expiry_ms)
    return ControllerResult([versioned(delegation_token_record(token))], response)


def handle_expire_delegation_token(
    image: MetadataImage, request: ExpireDelegationTokenRequest, principal: str, context: ControllerContext
) -> ControllerResult[ExpireDelegationTokenResponse]:
    """Set a token's expiry; a negative period expires it now. Raises KafkaError."""
    token = _own_token(image, request.hmac, principal, context)
    now_ms, period_ms = context.time_ms, request.expiry_time_period_ms
    if period_ms < 0:
        record = versioned(RemoveDelegationTokenRecord(token_id=token.token_id))
        return ControllerResult([record], ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms))
    if token.is_over(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    token = token._replace(expiry_ms=min(token.max_ms, now_ms + period_ms))
    response = ExpireDelegationTokenResponse(expiry_timestamp_ms=token.expiry_ms)
    return ControllerResult([versioned(delegation_token_record(token))], response)


def remove_expired_tokens(image: MetadataImage, context: ControllerContext, limit: int) -> ControllerResult[None]:
    """Remove expired tokens, at most `limit` of them in one slice."""
    over = [token.token_id for token in image.delegation_tokens.values() if token.is_over(context.time_ms)]
    records = [versioned(RemoveDelegationTokenRecord(token_id=token_id)) for token_id in over[:limit]]
    return ControllerResult(records, None, again=len(over) > limit)


def describe_delegation_tokens(
    image: MetadataImage, owners: Sequence[str] | None, visible: Callable[[DelegationToken], bool], secret: str
) -> DescribeDelegationTokenResponse:
    """Describe the tokens of `owners` (None: all users) that are `visible` to the requester."""
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, secret)
            for token in image.delegation_tokens.values()
            if (owners is None or any(token.belongs_to(owner) for owner in owners)) and visible(token)
        ]
    )


def _described(token: DelegationToken, secret: str) -> DescribedDelegationToken:
    (owner_type, owner_name), (requester_type, requester_name) = parted(token.owner), parted(token.requester)
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=hmac_of(secret, token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(parted, token.renewers)
        ],
    )
