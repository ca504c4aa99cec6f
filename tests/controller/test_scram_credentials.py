"""SCRAM credentials in the controller: alter, reject, describe."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.config.feature_levels import METADATA_VERSION
from ottla.common.errors import ErrorCode
from ottla.common.platform.shares import finish
from ottla.controller.scram_credentials import describe_user_scram_credentials, handle_alter_user_scram_credentials
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.security.sasl.credentials import ScramMechanism, credential_of

from .world import World

SHA_256, SHA_512 = 1, 2
TWICE = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
FINE = (ErrorCode.NONE, None)


def put(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted"
    )


def drop(name: str, mechanism: int = SHA_256) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(world: World, *changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, Any]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    results = world.run(lambda image, _: handle_alter_user_scram_credentials(image, request)).results
    names = [result.user for result in results]
    assert len(names) == len(set(names))
    return {result.user: (result.error_code, result.error_message) for result in results}


def described(world: World, *names: str) -> dict[str, Any]:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names] if names else None)
    return {
        result.user: result.error_message or [(info.mechanism, info.iterations) for info in result.credential_infos]
        for result in finish(describe_user_scram_credentials(world.image, request)).results
    }


@pytest.fixture
def world() -> World:
    return World()


def test_credentials_are_added_changed_and_removed(world: World) -> None:
    assert alter(world, put("ann"), put("bob", SHA_512, 16384)) == {"ann": FINE, "bob": FINE}
    assert alter(world, put("ann", SHA_512, 8192)) == {"ann": FINE}
    assert described(world) == {"ann": [(1, 4096), (2, 8192)], "bob": [(2, 16384)]}
    stored = world.image.scram_credential("ann", ScramMechanism.SHA_256)
    assert stored == credential_of(ScramMechanism.SHA_256, b"salted", b"salt", 4096)
    assert alter(world, put("ann", iterations=5000)) == {"ann": FINE}
    assert alter(world, drop("ann"), drop("bob", SHA_512)) == {"ann": FINE, "bob": FINE}
    assert described(world) == {"ann": [(2, 8192)]}


def test_stored_credential_differs_from_the_password(world: World) -> None:
    alter(world, put("ann"))
    assert b"salted" not in b"".join(map(bytes, world.image.scram_credentials["ann", 1][:3]))


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ([put("ann", iterations=4095)], (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")),
        ([put("ann", iterations=-1)], (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")),
        ([put("ann", iterations=16385)], (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")),
        ([put("ann", 0)], (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")),
        ([drop("ann", 3)], (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")),
        (
            [drop("ann", SHA_512)],
            (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
        ),
        ([put("ann"), put("ann", SHA_512)], TWICE),
        ([drop("ann"), put("ann")], TWICE),
        ([drop("ann"), drop("ann")], TWICE),
        ([put("ann"), put("ann"), put("ann")], TWICE),
    ],
)
def test_rejected_change_has_no_effect(world: World, changes: list[Any], outcome: Any) -> None:
    alter(world, put("ann"))
    before = world.image.scram_credentials
    assert alter(world, *changes, put("bob")) == {"ann": outcome, "bob": FINE}
    assert {key: each for key, each in world.image.scram_credentials.items() if key[0] == "ann"} == before


def test_a_name_has_to_be_there(world: World) -> None:
    assert alter(world, put("")) == {"": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")}


def test_old_metadata_level_is_rejected() -> None:
    world = World({METADATA_VERSION: 10})
    refused = (ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    assert alter(world, put("ann")) == {"ann": refused}


def test_users_are_described_by_name(world: World) -> None:
    alter(world, put("ann"))
    assert described(world, "ann", "bob", "eve", "eve") == {
        "ann": [(1, 4096)],
        "bob": "Attempt to describe a user credential that does not exist: bob",
        "eve": "Cannot describe SCRAM credentials for the same user twice in a single request: eve",
    }
