"""Requests that once stopped a node from starting, locked all users out or stopped a coordinator, on ZooKeeper."""

from __future__ import annotations

from tests.server.test_metadata_attacks import MIB, salted

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest

from .brokers import Life, Machines, World


def alter_broker(life: Life, **settings: str) -> int:
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in settings.items()
    ]
    resources = [AlterConfigsResource(resource_type=4, resource_name="", configs=configs)]
    request = IncrementalAlterConfigsRequest(resources=resources)
    return int(life.connect().ask(request, 1).responses[0].error_code)


def test_dangerous_changes_are_refused_and_broker_restarts() -> None:
    machine = Machines(World())
    life = machine.up()
    honest = life.connect()
    (answer,) = life.connect().ask(salted("u", salt_bytes=20 * MIB), 0).results
    assert answer.error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert alter_broker(life, max_connections="0") == ErrorCode.INVALID_CONFIG
    assert alter_broker(life, max_connections_per_ip="0") == ErrorCode.INVALID_CONFIG
    many = {f"plugin_{number}": "v" * 30_000 for number in range(20)}
    assert alter_broker(life, **many) == ErrorCode.INVALID_CONFIG
    honest.create_topic("t")
    life.stop()
    life = machine.up()
    assert set(life.broker.image.topics) == {"t"}
    assert not life.broker.image.scram_credentials
    assert life.connect().produce("t", b"x").error_code == 0


def test_unreadable_record_affects_no_other_transactional_id() -> None:
    world = World()
    machine = Machines(world)
    life = machine.up()

    def initialize(name: str) -> int:
        client = life.connect()

        def loaded() -> bool:
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
            client.ask(request, 4)
            answers.append(
                int(client.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000), 4).error_code)
            )
            return answers[-1] not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)

        answers: list[int] = []
        world.until(loaded)
        return answers[-1]

    assert initialize("a") == 0
    attacker = life.connect()
    attacker.client_id = "__admin_client"
    for key in (b"", b"\0", b"\0\0\0\1b"):
        assert attacker.produce("__transaction_state", b"\xff", key=key).error_code == 0
    life.stop()
    life = machine.up()
    assert initialize("a") == 0
    assert initialize("c") == 0
