"""AlterUserScramCredentials and DescribeUserScramCredentials: SCRAM credentials of users (KIP-554, KIP-900).

Checks, codes and messages are those of Apache Kafka 4.x; as there a request changes at most one credential of a user.
The client salts the password, and the stored value can't be reversed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from heapq import merge
from itertools import islice

from ottla.common.config.config_keys_bounds import MAX_SCRAM_CREDENTIALS
from ottla.common.config.feature_levels import SCRAM_CREDENTIALS
from ottla.common.errors import ErrorCode, KafkaError, without_frames
from ottla.controller.result import ControllerResult, check_record_count
from ottla.metadata.bounds import MAX_SALT_BYTES, MAX_SALTED_PASSWORD_BYTES, check_count, check_name
from ottla.metadata.image import MetadataImage, metadata_level
from ottla.metadata.records import versioned
from ottla.metadata.snapshot import scram_credential_record
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.protocol.messages.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from ottla.security.sasl.credentials import BY_NUMBER, MAX_ITERATIONS, MIN_ITERATIONS, credential_of

_STEP_NAMES = 512
"""Names that one step processes."""

_Record = RemoveUserScramCredentialRecord | UserScramCredentialRecord


def handle_alter_user_scram_credentials(
    image: MetadataImage,
    request: AlterUserScramCredentialsRequest,
    limit: int = 100_000,
) -> ControllerResult[AlterUserScramCredentialsResponse]:
    """Change credentials per user; `limit` is the maximum number of credentials of a cluster."""
    outcomes: dict[str, _Record | KafkaError] = {}
    check_record_count(len(request.deletions) + len(request.upsertions))
    _take(outcomes, image, request.deletions, _deletion)
    added = 0

    def upsertion(image: MetadataImage, change: ScramCredentialUpsertion) -> UserScramCredentialRecord:
        nonlocal added
        if (change.name, change.mechanism) not in image.scram_credentials:
            check_count(len(image.scram_credentials) + added, limit, "SCRAM credentials", MAX_SCRAM_CREDENTIALS)
            added += 1
        return _upsertion(change)

    _take(outcomes, image, request.upsertions, upsertion)
    results = [
        AlterUserScramCredentialsResult(user=name, error_code=outcome.code, error_message=outcome.message)
        if isinstance(outcome, KafkaError)
        else AlterUserScramCredentialsResult(user=name, error_message=None)
        for name, outcome in outcomes.items()
    ]
    records = [versioned(outcome) for outcome in outcomes.values() if not isinstance(outcome, KafkaError)]
    return ControllerResult(records, AlterUserScramCredentialsResponse(results=results))


def _take(
    outcomes: dict[str, _Record | KafkaError],
    image: MetadataImage,
    changes: Sequence[ScramCredentialDeletion] | Sequence[ScramCredentialUpsertion],
    record: Callable[..., _Record],
) -> None:
    """Compute the outcome of each change; the first error of a user fails all changes of that user."""
    for change in changes:
        earlier = outcomes.get(change.name)
        if isinstance(earlier, KafkaError):
            continue
        try:
            if earlier is not None:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            if metadata_level(image) < SCRAM_CREDENTIALS:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
            if not change.name:
                raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
            if change.mechanism not in BY_NUMBER:
                raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
            outcomes[change.name] = record(image, change)
        except KafkaError as error:
            outcomes[change.name] = without_frames(error)


def _deletion(image: MetadataImage, deletion: ScramCredentialDeletion) -> RemoveUserScramCredentialRecord:
    if (deletion.name, deletion.mechanism) not in image.scram_credentials:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return RemoveUserScramCredentialRecord(name=deletion.name, mechanism=deletion.mechanism)


def _upsertion(upsertion: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    if upsertion.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    check_name(upsertion.name, "username", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    if len(upsertion.salt) > MAX_SALT_BYTES:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"The salt is longer than {MAX_SALT_BYTES} bytes")
    if len(upsertion.salted_password) > MAX_SALTED_PASSWORD_BYTES:
        text = f"The salted password is longer than {MAX_SALTED_PASSWORD_BYTES} bytes"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    mechanism = BY_NUMBER[upsertion.mechanism]
    credential = credential_of(mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations)
    return scram_credential_record((upsertion.name, upsertion.mechanism), credential)


def describe_user_scram_credentials(
    image: MetadataImage, request: DescribeUserScramCredentialsRequest
) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
    """Describe the credentials of the named users, or of all users if none is named; without passwords.

    Runs in short steps; the generator returns the response.
    """
    counts: Counter[str] = Counter()
    for start in range(0, len(request.users or ()), _STEP_NAMES):
        counts.update(user.name for user in (request.users or ())[start : start + _STEP_NAMES])
        yield
    if not counts:
        counts = yield from _every_user(image)
    response = DescribeUserScramCredentialsResponse(error_message=None)
    for name, count in counts.items():
        response.results.append(_described(name, _infos(image, name), repeated=count > 1))
        yield
    return response


def _every_user(image: MetadataImage) -> Generator[None, None, Counter[str]]:
    """Return the names of all users, sorted, each counted once."""
    keys = iter(image.scram_credentials)
    runs: list[list[str]] = []
    while run := sorted({name for name, _ in islice(keys, _STEP_NAMES)}):
        runs.append(run)
        yield
    names: Counter[str] = Counter()
    for name in merge(*runs):
        names[name] = 1
        yield
    return names


def _infos(image: MetadataImage, name: str) -> list[CredentialInfo]:
    credentials = ((mechanism, image.scram_credentials.get((name, mechanism))) for mechanism in sorted(BY_NUMBER))
    return [
        CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        for mechanism, credential in credentials
        if credential is not None
    ]


def _described(name: str, infos: list[CredentialInfo], *, repeated: bool) -> DescribeUserScramCredentialsResult:
    if repeated:
        code = ErrorCode.DUPLICATE_RESOURCE
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif not infos:
        code = ErrorCode.RESOURCE_NOT_FOUND
        text = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        return DescribeUserScramCredentialsResult(user=name, error_message=None, credential_infos=infos)
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=text)
