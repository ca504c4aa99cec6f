"""SCRAM users (KIP-554): requests, and the service `Cluster.users`.

See `client.admin.topics`. Passwords are salted here: the cluster never receives them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ottla.client.admin.router import ClusterService
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.security.sasl.credentials import (
    BY_NAME,
    BY_NUMBER,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SALT_BYTES,
    salted_password,
)

ITERATIONS = (MIN_ITERATIONS, MAX_ITERATIONS)


@dataclass(frozen=True, order=True, slots=True)
class ScramUser:
    """One SCRAM credential; a user has at most one for each mechanism."""

    name: str
    mechanism: str
    iterations: int


def describe_users(connection: Connection) -> list[ScramUser]:
    """DescribeUserScramCredentials: all credentials, sorted by name."""
    response: DescribeUserScramCredentialsResponse = connection.request(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest(users=None)
    )
    raise_for(response.error_code, "users", response.error_message)
    return sorted(
        ScramUser(result.user, _mechanism_name(info.mechanism), info.iterations)
        for result in response.results
        for info in result.credential_infos
    )


def put_user(connection: Connection, name: str, mechanism: str, password: str, iterations: int) -> None:
    """AlterUserScramCredentials: set the password of a user for one mechanism."""
    salt = os.urandom(SALT_BYTES)
    upsertion = ScramCredentialUpsertion(
        name=name,
        mechanism=BY_NAME[mechanism].number,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(BY_NAME[mechanism], password, salt, iterations),
    )
    _alter(connection, name, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


def remove_user(connection: Connection, name: str, mechanism: str) -> None:
    """AlterUserScramCredentials: remove the credential of one mechanism."""
    deletion = ScramCredentialDeletion(name=name, mechanism=BY_NAME[mechanism].number)
    _alter(connection, name, AlterUserScramCredentialsRequest(deletions=[deletion]))


def _alter(connection: Connection, name: str, request: AlterUserScramCredentialsRequest) -> None:
    response: AlterUserScramCredentialsResponse = connection.request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
    for result in response.results:
        raise_for(result.error_code, f"user {name!r}", result.error_message)


def _mechanism_name(number: int) -> str:
    mechanism = BY_NUMBER.get(number)
    return f"mechanism {number}" if mechanism is None else mechanism.mechanism_name


class UserService(ClusterService):
    """SCRAM users."""

    def all(self) -> list[ScramUser]:
        """All SCRAM credentials of the cluster, sorted by user."""
        return self._router.retry(lambda: describe_users(self._router.any_connection()))

    def put(self, name: str, mechanism: str, password: str, iterations: int = ITERATIONS[0]) -> None:
        """Add a user or change a password."""
        self._router.change(lambda connection: put_user(connection, name, mechanism, password, iterations))

    def remove(self, name: str, mechanism: str) -> None:
        """Remove the credential of one mechanism. Raises KafkaError RESOURCE_NOT_FOUND."""
        self._router.change(lambda connection: remove_user(connection, name, mechanism))
