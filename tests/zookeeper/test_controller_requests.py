"""Requests of other brokers to the controller on ZooKeeper: operations, listeners and permissions."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.harness import Connection, MemoryChannel, fetched
from tests.server.harness import fetch_request as fetch_of_records

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import ANONYMOUS
from ottla.common.platform.endpoint import Endpoint, ListenerInfo
from ottla.metadata.image import BrokerImage, PartitionImage
from ottla.metadata.records import SUPPORTED_FEATURES
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.envelope import EnvelopeRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.registry import ApiKey
from ottla.protocol.znodes import paths
from ottla.quorum.raft_types import OffsetAndEpoch, ReplicaKey
from ottla.quorum.rpc import fetch_request, read_fetch, read_snapshot_piece, snapshot_request
from ottla.server.requests.principals import pack_principal
from ottla.zookeeper.writing import registration

from ..quorum.snapshot_content import read_snapshot
from .brokers import FOREVER_MS, Life, Machines, World, address_of

PEER = 2
BETWEEN_BROKERS = {
    ApiKey.ALTER_PARTITION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ENVELOPE,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.FETCH_SNAPSHOT,
}


class Peer:
    """Another broker, with its registration and its requests to this one."""

    def __init__(self, world: World, life: Life) -> None:
        self.world, self.life = world, life
        self.session = 0
        self.register()
        self.connection = life.connect()

    def register(self) -> None:
        world = self.world
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", *address_of(PEER))
        image = BrokerImage(PEER, -1, b"", (endpoint,), SUPPORTED_FEATURES, None, False, False, ())
        self.session = world.server.connect(FOREVER_MS)
        world.server.multi(self.session, [registration(image, 1)])
        world.ensemble.deliver()
        world.until(lambda: self.epoch > self.world.server.tree()[paths.broker(1)].created)

    @property
    def epoch(self) -> int:
        known = self.life.broker.image.brokers.get(PEER)
        return -1 if known is None else known.broker_epoch

    def allocate(self, epoch: int | None = None) -> Any:
        epoch = self.epoch if epoch is None else epoch
        return self.connection.ask(AllocateProducerIdsRequest(broker_id=PEER, broker_epoch=epoch), 0)

    def heartbeat(self) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=PEER,
            broker_epoch=self.epoch,
            current_metadata_offset=self.life.broker.image.offset,
            want_shut_down=True,
        )
        return self.connection.ask(request, 2)

    def propose(self, partition: PartitionImage, isr: tuple[int, ...], leader: int) -> Any:
        brokers = self.life.broker.image.brokers
        change = AlterPartitionPartition(
            partition_index=0,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=brokers[each].broker_epoch) for each in isr],
            partition_epoch=partition.partition_epoch,
        )
        topic_id = self.life.broker.image.topics["t"].topic_id
        topic = AlterPartitionTopic(topic_id=topic_id, partitions=[change])
        request = AlterPartitionRequest(broker_id=leader, broker_epoch=brokers[leader].broker_epoch, topics=[topic])
        response = self.connection.ask(request, 3)
        assert response.error_code == 0
        return response.topics[0].partitions[0]

    def enclose(self, message: object, version: int, principal: str = ANONYMOUS) -> Any:
        """A client request to this broker in an envelope; returns the inner response, or the error."""
        key = ApiKey.CREATE_TOPICS
        data = encode_request(key, version, 7, "client", message)[4:]
        envelope = EnvelopeRequest(
            request_data=data, request_principal=pack_principal(principal), client_host_address=bytes([10, 0, 0, 1])
        )
        response = self.connection.ask(envelope, 0)
        if response.error_code:
            return ErrorCode.for_code(response.error_code)
        correlation_id, inner = decode_response(key, version, bytes(response.response_data))
        assert correlation_id == 7
        return inner


def create(name: str, *replicas: int) -> CreateTopicsRequest:
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def life(world: World) -> Life:
    return Machines(world).up()


@pytest.fixture
def peer(world: World, life: Life) -> Peer:
    return Peer(world, life)


def partition_of(life: Life, topic: str = "t") -> PartitionImage:
    return life.broker.image.topics[topic].partitions[0]


def made(peer: Peer, *replicas: int) -> None:
    (topic,) = peer.enclose(create("t", *replicas), 7).topics
    assert topic.error_code == 0, topic.error_message


def test_forwarded_client_request_is_executed(life: Life, peer: Peer) -> None:
    made(peer, PEER, 1)
    assert partition_of(life).replicas == (PEER, 1)


def test_blocks_of_producer_ids_are_given_to_others(life: Life, peer: Peer) -> None:
    first, second = peer.allocate(), peer.allocate()
    assert [first.error_code, second.error_code] == [0, 0]
    assert second.producer_id_start >= first.producer_id_start + first.producer_id_len
    assert peer.allocate(peer.epoch - 1).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_leader_elsewhere_changes_its_isr(life: Life, peer: Peer) -> None:
    made(peer, PEER, 1)
    assert peer.propose(partition_of(life), (PEER,), PEER).error_code == 0
    assert partition_of(life).isr == (PEER,)
    assert peer.propose(partition_of(life), (PEER, 1), PEER).error_code == 0
    assert partition_of(life).isr == (PEER, 1)


def test_another_one_is_let_go_once_it_leads_nothing(world: World, life: Life, peer: Peer) -> None:
    made(peer, PEER, 1)
    assert partition_of(life).leader == PEER
    first = peer.heartbeat()
    assert (first.error_code, first.should_shut_down) == (0, False)
    assert (partition_of(life).leader, partition_of(life).isr) == (1, (1,))
    assert peer.heartbeat().should_shut_down
    assert life.broker.image.brokers[PEER].fenced
    world.server.close(peer.session)
    world.ensemble.deliver()
    world.until(lambda: PEER not in life.broker.image.brokers)
    peer.register()
    assert not life.broker.image.brokers[PEER].fenced, "its next life is another one"


def test_other_listeners_return_the_controller(life: Life, peer: Peer) -> None:
    assert peer.connection.ask(MetadataRequest(topics=[]), 12).controller_id == 1
    response = peer.connection.ask(DescribeClusterRequest(), 1)
    assert response.controller_id == 1
    assert sorted(node.broker_id for node in response.brokers) == [1, PEER]


def test_broker_that_is_not_the_controller_returns_an_error(world: World, life: Life, peer: Peer) -> None:
    life.session.cut()
    assert not life.broker.parts.control.controller.active
    assert peer.enclose(create("t", 1), 7) is ErrorCode.NOT_CONTROLLER
    assert peer.allocate().error_code == ErrorCode.NOT_CONTROLLER
    assert peer.heartbeat().error_code == ErrorCode.NOT_CONTROLLER
    world.until(lambda: life.broker.parts.control.controller.active and PEER in life.broker.image.brokers)
    assert peer.allocate().error_code == 0


LISTENERS = {
    "listeners": "INTERNAL://127.0.0.1:9092,EXTERNAL://127.0.0.1:9093",
    "listener_security_protocol_map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
}


AUTHORIZED = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:broker",
}


def served(life: Life, listener: str) -> set[int]:
    connection = on(life, listener)
    response = connection.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    return {each.api_key for each in response.api_keys}


def on(life: Life, listener: str) -> Connection:
    channel = MemoryChannel(3)
    channel.listener = ListenerInfo(listener, "PLAINTEXT")
    return Connection(life, channel)  # type: ignore[arg-type]


def test_clients_reach_none_of_it_on_a_listener_of_their_own(world: World) -> None:
    life = Machines(world).begin(**LISTENERS)
    life.serves()
    assert served(life, "INTERNAL") - served(life, "EXTERNAL") == BETWEEN_BROKERS
    outside = on(life, "EXTERNAL")
    outside.send(AllocateProducerIdsRequest(broker_id=1, broker_epoch=life.epoch), 0)
    assert outside.channel.closed
    assert on(life, "INTERNAL").ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=life.epoch), 0).error_code == 0


def test_it_needs_cluster_action(world: World) -> None:
    life = Machines(world).begin(**AUTHORIZED)
    life.serves()
    connection = life.connect()
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=life.epoch)
    assert connection.ask(request, 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    envelope = EnvelopeRequest(request_data=b"", request_principal=None, client_host_address=bytes(4))
    assert connection.ask(envelope, 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    connection.channel.principal = "User:broker"
    assert connection.ask(request, 0).error_code == 0


def test_a_start_that_the_controller_does_not_let_in_ends(world: World) -> None:
    first = Machines(world).begin(**AUTHORIZED)
    first.serves()
    second = Machines(world, PEER).begin(**AUTHORIZED, initial_broker_registration_timeout_ms="30000")
    began_s = world.loop.time()
    refusal = second.refusal()
    assert "the controller does not serve it (CLUSTER_AUTHORIZATION_FAILED)" in refusal
    assert "super.users" in refusal
    assert world.loop.time() - began_s > 30
    assert not first.fatal


def begin_new_term(world: World, life: Life) -> None:
    """With a controller that has received no request of a broker yet."""
    path = paths.broker(PEER)
    world.until(lambda: world.server.tree()[path].version)
    life.session.cut()
    world.until(lambda: life.broker.parts.control.controller.active and PEER in life.broker.image.brokers)


def fetch_metadata(life: Life, connection: Connection, cluster_id: str = "") -> Any:
    """A fetch from the start, as by a new follower."""
    epoch = life.broker.image.epoch
    request = fetch_request(
        cluster_id or life.broker.cluster_id,
        ReplicaKey(PEER),
        epoch,
        OffsetAndEpoch(0, 0),
        0,
        max_wait_ms=0,
        max_bytes=1 << 20,
    )
    return connection.ask(request, 18)


class TestTheMetadataLog:
    """The metadata log as fetched by followers."""

    def test_a_reign_begins_with_a_snapshot(self, world: World, life: Life, peer: Peer) -> None:
        begin_new_term(world, life)
        answer = read_fetch(fetch_metadata(life, peer.connection))
        place = answer.partition.snapshot_id
        assert answer.error is ErrorCode.NONE
        assert place.epoch == life.broker.image.epoch
        request = snapshot_request(
            life.broker.cluster_id,
            ReplicaKey(PEER),
            place.epoch,
            OffsetAndEpoch(place.end_offset, place.epoch),
            0,
            1 << 20,
        )
        piece = read_snapshot_piece(peer.connection.ask(request, 1))
        assert piece.error is ErrorCode.NONE
        data = bytes(piece.partition.unaligned_records)
        assert piece.partition.size == len(data)
        assert read_snapshot(data).records

    def test_request_of_another_cluster_is_refused(self, life: Life, peer: Peer) -> None:
        assert fetch_metadata(life, peer.connection, "o" * 22).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID

    def test_records_are_fetched_by_the_same_row(self, life: Life) -> None:
        client = life.connect()
        topic_id = client.create_topic("t")
        assert client.produce("t", b"x").error_code == 0
        (found,) = fetched(client.ask(fetch_of_records((topic_id, 0, 0)), 13)).values()
        assert found.high_watermark == 1

    def test_a_listener_of_clients_has_no_such_topic(self, world: World) -> None:
        life = Machines(world).begin(**LISTENERS)
        life.serves()
        (topic,) = fetch_metadata(life, on(life, "EXTERNAL")).responses
        assert topic.partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert read_fetch(fetch_metadata(life, on(life, "INTERNAL"))).error is ErrorCode.NONE

    def test_it_needs_cluster_action(self, world: World) -> None:
        life = Machines(world).begin(**AUTHORIZED)
        life.serves()
        connection = life.connect()
        assert fetch_metadata(life, connection).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        connection.channel.principal = "User:broker"
        assert read_fetch(fetch_metadata(life, connection)).error is ErrorCode.NONE


class TestShuttingDown:
    def test_no_broker_is_fenced_by_a_heartbeat(self, life: Life, peer: Peer) -> None:
        request = BrokerHeartbeatRequest(broker_id=PEER, broker_epoch=peer.epoch, want_fence=True)
        assert peer.connection.ask(request, 2).error_code == ErrorCode.INVALID_REQUEST
        assert not life.broker.image.brokers[PEER].fenced

    def test_impersonated_shutdown_causes_a_new_registration(self, world: World, life: Life, peer: Peer) -> None:
        made(peer, 1, PEER)
        epoch = life.epoch
        request = BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=epoch, current_metadata_offset=life.broker.image.offset, want_shut_down=True
        )
        assert peer.connection.ask(request, 2).error_code == 0
        world.until(lambda: life.epoch > epoch)
        own = life.broker.image.brokers[1]
        assert (own.fenced, own.in_controlled_shutdown) == (False, False)
        assert not life.fatal

    def test_request_can_not_unregister_a_broker(self, life: Life) -> None:
        assert not served(life, "PLAINTEXT") & {ApiKey.UNREGISTER_BROKER, ApiKey.UNREGISTER_CONTROLLER}

    def test_others_lead_before_the_session_is_closed(self, world: World, life: Life, peer: Peer) -> None:
        made(peer, 1, PEER)
        before = partition_of(life).leader_epoch
        begin_new_term(world, life)
        over = world.loop.create_task(life.broker.hand_over())
        world.until(lambda: life.broker.image.brokers[1].in_controlled_shutdown)
        assert partition_of(life).leader == 1, "nothing was heard from the other one since"
        fetch_metadata(life, peer.connection)
        world.until(over.done)
        over.result()
        assert world.node(paths.broker(1)) is not None
        partition = partition_of(life)
        assert (partition.leader, partition.isr) == (PEER, (PEER,))
        assert partition.leader_epoch > before
        life.stop()
        assert world.node(paths.broker(1)) is None

    def test_one_that_is_alone_goes_as_it_is(self, world: World, life: Life) -> None:
        life.connect().create_topic("t")
        before = partition_of(life)
        over = world.loop.create_task(life.broker.hand_over())
        world.until(over.done, within_s=0.1)
        over.result()
        assert partition_of(life) == before

    def test_one_that_reaches_no_controller_goes_without_leave(self, world: World, life: Life, peer: Peer) -> None:
        made(peer, 1, PEER)
        life.session.cut()
        life.session.close(lambda: None)
        over = world.loop.create_task(life.broker.hand_over())
        world.until(over.done)
        over.result()
        assert partition_of(life).leader == 1
