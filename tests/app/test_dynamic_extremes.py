"""No dynamic number that is accepted makes a broker unreachable, while it runs and after another start."""

from __future__ import annotations

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import ConfigOperation, ResourceType
from ottla.common.config.config_def import ConfigType, UpdateMode
from ottla.common.config.config_keys_broker import BROKER_CONFIGS
from ottla.common.errors import ErrorCode, KafkaError
from ottla.testing import Broker

LARGEST = {ConfigType.INT: str(2**31 - 1), ConfigType.LONG: str(2**63 - 1), ConfigType.DOUBLE: "1e308"}
NUMBERS = [
    (name, LARGEST[key.type])
    for name, key in sorted(BROKER_CONFIGS.items())
    if key.update_mode is not UpdateMode.READ_ONLY and key.type in LARGEST
]
NO_ONE_COULD_CONNECT = {"max.connections", "max.connections.per.ip", "max.connection.creation.rate"}


def set_all(broker: Broker, values: list[tuple[str, str]]) -> dict[str, ErrorCode]:
    """The error code of each refused setting; a client connects for each one."""
    refused: dict[str, ErrorCode] = {}
    for name, text in values:
        with Cluster(broker.bootstrap_servers) as cluster:
            try:
                cluster.configs.alter(ResourceType.BROKER, "", [(name, ConfigOperation.SET, text)])
            except KafkaError as error:
                refused[name] = error.code
    return refused


@pytest.mark.parametrize("text", ["0", "1", "largest"])
def test_accepted_extremes_leave_the_broker_manageable(text: str) -> None:
    numbers = [each for each in NUMBERS if text != "1" or each[0] not in NO_ONE_COULD_CONNECT]
    values = [(name, largest if text == "largest" else text) for name, largest in numbers]
    with Broker() as broker:
        refused = set_all(broker, values)
        locking = {name for name, code in refused.items() if code == ErrorCode.INVALID_CONFIG}
        assert locking == (NO_ONE_COULD_CONNECT if text == "0" else set())
        broker.restart()
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create("t")
        logs = broker.logs()
    assert "Traceback" not in logs
    assert " ERROR " not in logs
