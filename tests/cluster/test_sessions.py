"""Broker sessions in real processes: expiry, foreign requests, and recovery after a lost session."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from ottla.app.ports import HOST, free_ports
from ottla.client.wire.connection import Connection
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    RegistrationFeature,
    RegistrationListener,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.registry import ApiKey

from .logged_process import STOP_TIMEOUT_S
from .nodes import START_TIMEOUT_S, ZOOKEEPER, Node, Nodes, eventually, of_the_quorum
from .test_three_nodes import admin, consume, create, in_sync, produce

REFUSED = "registration of this broker was refused"
NO_OFFSET = 2**63 - 1


def ask_controller(nodes: Nodes, key: ApiKey, message: object) -> object:
    """Return the response of the active controller, whichever node it is."""
    for node in nodes.nodes:
        connection = Connection(HOST, node.controllers_port, client_id="test", timeout_s=10, software_version="1")
        try:
            answer = connection.request(key, message)
        finally:
            connection.close()
        if answer.error_code != ErrorCode.NOT_CONTROLLER:
            return answer
    return None


def epochs(node: Node) -> list[int]:
    """Return the epochs of its registrations in order; they are in the metadata log, or in ZooKeeper's public tree."""
    found = re.findall(rf"registered as broker {node.node_id} with epoch (\d+)", node.log_text())
    return [int(epoch) for epoch in found]


def test_brokers_recover_from_a_foreign_shutdown_request(steady: Nodes) -> None:
    nodes = steady
    client = admin(*nodes.nodes)
    create(client, "t", min_insync_replicas="2")
    eventually(lambda: in_sync(client, "t", 3), "all replicas are in sync")
    produce(nodes, "t", [f"before-{number}" for number in range(50)])
    for node in nodes.nodes:
        request = BrokerHeartbeatRequest(
            broker_id=node.node_id,
            broker_epoch=epochs(node)[-1],
            current_metadata_offset=NO_OFFSET,
            want_shut_down=True,
        )
        answer = eventually(partial(ask_controller, nodes, ApiKey.BROKER_HEARTBEAT, request), "a controller answers")
        assert isinstance(answer, BrokerHeartbeatResponse)
        assert answer.error_code == 0
    eventually(lambda: all(len(epochs(node)) > 1 for node in nodes.nodes), "each has registered again")
    eventually(lambda: in_sync(client, "t", 3), "all replicas are in sync again")
    produce(nodes, "t", [f"after-{number}" for number in range(50)])
    assert len(consume(nodes, "t", 100)) == 100
    for node in nodes.nodes:
        warnings = [
            line for line in node.log_text().splitlines() if "WARNING" in line and "received a shutdown request" in line
        ]
        assert len(warnings) == 1, "one warning reports it"


@of_the_quorum(reason="registrations are znodes: BrokerRegistration is not served")
def test_foreign_registration_of_invalid_id_is_rejected(nodes: Nodes) -> None:
    """Another id would get replicas, and -1 means "no leader"."""
    client = admin(*nodes.nodes)
    create(client, "t")
    for broker_id in (-1, -(2**31)):
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=nodes.cluster_id,
            incarnation_id=b"I" * 16,
            listeners=[RegistrationListener(name="PLAINTEXT", host=HOST, port=9)],
            features=[RegistrationFeature(name="metadata.version", min_supported_version=1, max_supported_version=99)],
            log_dirs=[b"D" * 16],
        )
        answer = eventually(partial(ask_controller, nodes, ApiKey.BROKER_REGISTRATION, request), "a controller answers")
        assert isinstance(answer, BrokerRegistrationResponse)
        assert answer.error_code == ErrorCode.INVALID_REGISTRATION
    produce(nodes, "t", ["still here"])


def ready_or_over(ready: Path, process: subprocess.Popen[bytes]) -> bool:
    """Return whether waiting is over."""
    return ready.exists() or process.poll() is not None


@of_the_quorum(reason="`ottla start --brokers` makes a quorum")
def test_restarted_cluster_does_not_wait_for_old_sessions(tmp_path: Path) -> None:
    """All stop at once, so no controller is left to fence them; the sessions would last for a minute."""
    ready, log = tmp_path / "ready.json", tmp_path / "log"
    command = [sys.executable, "-m", "ottla", "start", "--brokers", "3", "--port", "0"]
    command += ["--data-dir", str(tmp_path / "data"), "--ready-file", str(ready)]
    command += ["--set", "broker.session.timeout.ms=60000", "--set", "initial.broker.registration.timeout.ms=30000"]
    for _ in range(2):
        with log.open("ab") as output:
            supervisor = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            eventually(partial(ready_or_over, ready, supervisor), "three are ready", 60)
            assert ready.exists(), log.read_text()
        finally:
            supervisor.terminate()
            assert supervisor.wait(STOP_TIMEOUT_S) == 0, log.read_text()
        ready.unlink(missing_ok=True)
    assert REFUSED not in log.read_text()


@pytest.mark.promise("R10")
def test_second_broker_with_the_same_id_is_rejected(make_nodes: Callable[..., Nodes]) -> None:
    """The second runs from a copy of the first one's directory, with all of its local state.

    It retries for longer than an unrenewed session of the first would last.
    """
    nodes = make_nodes(broker_session_timeout_ms="4000")
    nodes.start()
    client = admin(*nodes.nodes)
    first = nodes.add()
    eventually(lambda: len(client.list_topics(timeout=10).brokers) == 4, "four brokers")
    copy = first.data_dir.with_name("copy")
    shutil.copytree(first.data_dir, copy)
    config = first.config.with_name("copy.properties")
    text = first.config.read_text().replace(first.address, f"{HOST}:{free_ports(1)[0]}")
    config.write_text(text.replace(str(first.data_dir), str(copy)) + "initial.broker.registration.timeout.ms=8000\n")
    command = [first.place.python, "-m", "ottla", "start", "--config", str(config)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
    assert second.returncode == 2, second.stderr
    if ZOOKEEPER:
        assert f"Another process is registered in ZooKeeper as broker {first.node_id}" in second.stderr
    else:
        assert f"another broker with node.id {first.node_id} is alive" in second.stderr
        assert second.stderr.count(REFUSED) == 1, "reported once, despite all retries"
    assert len(epochs(first)) == 1, "the first did not notice"
    assert first.ready


def credentials(count: int) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(
                name=f"user-{number}", mechanism=1, iterations=4096, salt=b"s" * 16, salted_password=b"p" * 32
            )
            for number in range(count)
        ]
    )


def request_and_close(port: int, message: AlterUserScramCredentialsRequest) -> int:
    """Return how many credentials the broker at `port` had changed by the controller."""
    connection = Connection(HOST, port, client_id="abuser", timeout_s=120, software_version="1")
    try:
        answer = connection.request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, message)
    finally:
        connection.close()
    return sum(result.error_code == ErrorCode.NONE for result in answer.results)


@of_the_quorum(reason="the session is ZooKeeper's, and a thread of its own keeps it")
def test_session_lasts_while_clients_forward_expensive_requests(tmp_path: Path) -> None:
    """The controller processes them in order, which takes longer than a session. A heartbeat among them timed out, and
    with it the connection and all client requests on it."""
    nodes = Nodes(tmp_path, 2, voters=1)
    crowd, changed = 12, 8_000
    try:
        nodes.start()
        honest = Connection(HOST, nodes[2].port, client_id="honest", timeout_s=30, software_version="1")
        message = credentials(changed)
        with ThreadPoolExecutor(crowd) as abusers:
            asked = [abusers.submit(request_and_close, nodes[2].port, message) for _ in range(crowd)]
            while not all(each.done() for each in asked):
                assert honest.request(ApiKey.LIST_GROUPS, ListGroupsRequest()).error_code == ErrorCode.NONE
        honest.close()
        assert [each.result() for each in asked] == [changed] * len(asked)
        assert len(epochs(nodes[2])) == 1
        assert "was fenced" not in nodes[2].log_text()
    finally:
        nodes.close()
