"""Requests that once left unreadable metadata: refused, while another client is served."""

from __future__ import annotations

import gc
import tracemalloc

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from .harness import Connection, Server

MIB = 1024 * 1024


def salted(*names: str, salt_bytes: int) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(
                name=name, mechanism=1, iterations=4096, salt=b"s" * salt_bytes, salted_password=b"p" * 32
            )
            for name in names
        ]
    )


def test_large_salts_are_refused_and_the_node_starts_again(server: Server, client: Connection) -> None:
    honest = server.connect()
    for number in range(9):
        answer = client.ask(salted(f"u{number}", salt_bytes=20 * MIB), 0)
        assert [each.error_code for each in answer.results] == [ErrorCode.UNACCEPTABLE_CREDENTIAL]
        honest.create_topic(f"t{number}")
    server.restart()
    image = server.broker.parts.publisher.image
    assert len(image.topics) == 9
    assert not image.scram_credentials


def test_a_refused_request_is_not_kept_in_memory(server: Server, client: Connection) -> None:
    request = salted("ann", salt_bytes=MIB)
    client.ask(request, 0)
    gc.collect()
    gc.disable()  # a broker collects garbage rarely
    tracemalloc.start()
    try:
        for _ in range(4):
            client.ask(request, 0)
        assert tracemalloc.get_traced_memory()[0] < MIB
    finally:
        tracemalloc.stop()
        gc.enable()


def test_credentials_above_one_batch_are_stored_in_parts(server: Server, client: Connection) -> None:
    names = [f"{number:04}" + "n" * 1000 for number in range(9000)]
    answer = client.ask(salted(*names, salt_bytes=1000), 0)
    assert [(each.user, each.error_code) for each in answer.results] == [(name, ErrorCode.NONE) for name in names]
    server.connect().create_topic("honest")
    server.restart()
    assert len(server.broker.parts.publisher.image.scram_credentials) == len(names)


def test_settings_that_no_broker_knows_are_bounded(server: Server, client: Connection) -> None:
    configs = [AlterableConfig(name="plugin", config_operation=0, value="v" * 30_000)]
    resources = [AlterConfigsResource(resource_type=4, resource_name="", configs=configs)]
    answer = client.ask(IncrementalAlterConfigsRequest(resources=resources), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE
    many = [AlterableConfig(name=f"plugin{n}", config_operation=0, value="v" * 30_000) for n in range(300)]
    resources = [AlterConfigsResource(resource_type=4, resource_name="", configs=many)]
    answer = client.ask(IncrementalAlterConfigsRequest(resources=resources), 1)
    assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG
    server.connect().create_topic("honest")
