"""Limits on requests' metadata: an attacker is rejected, and an honest client beside it is served."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ErrorCode
from ottla.controller.acls import handle_create_acls
from ottla.controller.client_quotas import handle_alter_client_quotas
from ottla.controller.configs import handle_incremental_alter_configs
from ottla.controller.delegation_tokens import handle_create_delegation_token
from ottla.controller.result import ControllerContext
from ottla.controller.scram_credentials import handle_alter_user_scram_credentials
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import encode_record
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredEntity,
    AlterQuotaOperation,
    AlterQuotasEntry,
)
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.security.sasl.tokens import TokenIndex

from .conftest import Apply, MakeContext

POLICY = ErrorCode.POLICY_VIOLATION
EVE, ANN = "User:eve", "User:ann"


def with_tokens(make_context: MakeContext, **settings: str) -> ControllerContext:
    return make_context(**settings)._replace(tokens=TokenIndex("secret"), time_ms=1)


def token(image: MetadataImage, context: ControllerContext, requester: str, *renewers: str) -> Any:
    names = [CreatableRenewers(principal_type="User", principal_name=name) for name in renewers]
    request = CreateDelegationTokenRequest(max_lifetime_ms=-1, renewers=names)
    return handle_create_delegation_token(image, request, requester, context)


def scram(**fields: Any) -> AlterUserScramCredentialsRequest:
    plain: dict[str, Any] = {
        "name": "ann",
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"s" * 20,
        "salted_password": b"p" * 32,
    }
    return AlterUserScramCredentialsRequest(upsertions=[ScramCredentialUpsertion(**{**plain, **fields})])


def acls(count: int, **fields: Any) -> CreateAclsRequest:
    plain = {"resource_type": 2, "resource_pattern_type": 3, "principal": ANN, "host": "*"}
    plain |= {"operation": 3, "permission_type": 3}
    each = [{**plain, "resource_name": f"t{number}", **fields} for number in range(count)]
    return CreateAclsRequest(creations=[AclCreation(**one) for one in each])


def quotas(*users: str) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            AlterQuotasEntry(
                entity=[AlteredEntity(entity_type="user", entity_name=user)],
                ops=[AlterQuotaOperation(key="producer_byte_rate", value=1.0, remove=False)],
            )
            for user in users
        ]
    )


def settings(kind: ConfigResourceType, name: str, values: dict[str, str]) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=key, config_operation=0, value=text) for key, text in values.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


@pytest.mark.parametrize(
    ("names", "code"),
    [(["b" * 70] * 100, 0), (["b" * 32_000] * 100, POLICY), (["b"] * 101, POLICY), (["\u20ac" * 3_000], POLICY)],
)
def test_renewers_of_a_token_are_bounded(
    image: MetadataImage, make_context: MakeContext, names: list[str], code: int
) -> None:
    result = token(image, with_tokens(make_context), EVE, *names)
    assert result.response.error_code == code
    assert sum(len(encode_record(record)) for record in result.records) < 10_000


def test_tokens_of_one_owner_leave_room_for_others(
    image: MetadataImage, make_context: MakeContext, apply: Apply
) -> None:
    context = with_tokens(
        make_context, **{"metadata.max.delegation.tokens.per.owner": "2", "metadata.max.delegation.tokens": "4"}
    )

    def create(requester: str) -> int:
        nonlocal image
        result = token(image, context, requester)
        image = apply(image, result.records)
        return int(result.response.error_code)

    assert [create(EVE) for _ in range(3)] == [0, 0, POLICY]
    assert [create(ANN) for _ in range(2)] == [0, 0]
    assert create("User:bob") == POLICY, "of the cluster"


@pytest.mark.parametrize(
    ("fields", "accepted"),
    [
        ({"salt": b"s" * 1024}, True),
        ({"salt": b"s" * 1025}, False),
        ({"salt": b"s" * (20 << 20)}, False),
        ({"salted_password": b"p" * 1025}, False),
        ({"name": "\u20ac" * 342}, False),
        ({"name": "n" * 1024}, True),
    ],
)
def test_scram_credentials_are_bounded_in_bytes(image: MetadataImage, fields: dict[str, Any], accepted: bool) -> None:
    result = handle_alter_user_scram_credentials(image, scram(**fields))
    expected = ErrorCode.NONE if accepted else ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert [each.error_code for each in result.response.results] == [expected]
    assert len(result.records) == accepted


def test_scram_credentials_are_bounded_in_number(image: MetadataImage, apply: Apply) -> None:
    request = scram(name="ann")
    request.upsertions += scram(name="eve").upsertions
    result = handle_alter_user_scram_credentials(image, request, 1)
    assert [each.error_code for each in result.response.results] == [0, POLICY]
    image = apply(image, result.records)
    again = handle_alter_user_scram_credentials(image, scram(name="ann", iterations=5000), 1)
    assert [each.error_code for each in again.response.results] == [0], "a new password needs no room"


@pytest.mark.parametrize(
    "fields", [{"resource_name": "r" * 1025}, {"principal": "User:" + "p" * 1020}, {"host": "h" * 256}]
)
def test_names_in_acls_are_bounded(image: MetadataImage, context: ControllerContext, fields: dict[str, str]) -> None:
    request = acls(1, **fields)
    request.creations += acls(1).creations
    result = handle_create_acls(image, request, context)
    assert [each.error_code for each in result.response.results] == [ErrorCode.INVALID_REQUEST, 0]
    assert len(result.records) == 1


def test_acls_are_bounded_by_their_setting(image: MetadataImage, make_context: MakeContext) -> None:
    result = handle_create_acls(image, acls(3), make_context(metadata_max_acls="2"))
    assert [each.error_code for each in result.response.results] == [0, 0, POLICY]
    assert "metadata.max.acls" in (result.response.results[-1].error_message or "")


def test_quota_entities_are_bounded(image: MetadataImage, apply: Apply) -> None:
    result = handle_alter_client_quotas(image, quotas("eve", "u" * 1025, "ann"), 1)
    assert [each.error_code for each in result.response.entries] == [0, ErrorCode.INVALID_REQUEST, POLICY]
    image = apply(image, result.records)
    removal = quotas("eve")
    removal.entries[0].ops[0].remove = True
    assert len(handle_alter_client_quotas(image, removal, 1).records) == 1


@pytest.mark.parametrize(
    "values",
    [
        {"n" * 1025: "v"},
        {f"n{number}": "v" for number in range(1001)},
        {f"n{number}": "v" * 30_000 for number in range(9)},
        {f"n{number}": "\u20ac" * 10_000 for number in range(9)},
    ],
)
def test_unknown_settings_of_a_broker_are_bounded(
    image: MetadataImage, context: ControllerContext, values: dict[str, str]
) -> None:
    request = settings(ConfigResourceType.BROKER, "", values)
    request.resources += settings(ConfigResourceType.BROKER, "1", {"plugin.setting": "v"}).resources
    result = handle_incremental_alter_configs(image, request, context)
    assert [each.error_code for each in result.response.responses] == [ErrorCode.INVALID_CONFIG, 0]
    assert len(result.records) == 1


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        (ConfigResourceType.GROUP, "consumer.session.timeout.ms"),
        (ConfigResourceType.CLIENT_METRICS, "interval.ms"),
    ],
)
def test_resources_that_exist_by_settings_are_bounded(
    image: MetadataImage, make_context: MakeContext, apply: Apply, kind: ConfigResourceType, setting: str
) -> None:
    context = make_context(metadata_max_group_configs="1", metadata_max_client_metrics="1")

    def alter(image: MetadataImage, name: str) -> Any:
        request = settings(kind, name, {setting: "50000"})
        return handle_incremental_alter_configs(image, request, context)

    result = alter(image, "g" * 1025)
    assert result.response.responses[0].error_code == ErrorCode.INVALID_REQUEST
    result = alter(image, "one")
    assert result.response.responses[0].error_code == 0
    image = apply(image, result.records)
    assert alter(image, "two").response.responses[0].error_code == POLICY
    assert alter(image, "one").response.responses[0].error_code == 0
