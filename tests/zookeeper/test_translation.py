"""Metadata becomes znodes, and znodes become the same metadata."""

from __future__ import annotations

from random import Random

import pytest
from simulation.zookeeper import SimZooKeeper

from ottla.common.errors import InvariantError
from ottla.common.platform.endpoint import Endpoint
from ottla.metadata.image import BrokerImage, MetadataImage, VersionRange
from ottla.protocol.messages.metadata_records import (
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
)
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.brokers import decode_broker
from ottla.zookeeper.writing import registration

from .world import (
    BROKER,
    EVERYTHING,
    GROUP,
    TOPIC,
    Controller,
    a_credential,
    a_limit,
    a_partition,
    a_setting,
    a_topic,
    an_acl,
    check_valid,
    content,
    id_of,
    seen,
)


@pytest.fixture
def server() -> SimZooKeeper:
    return SimZooKeeper()


@pytest.fixture
def controller(server: SimZooKeeper) -> Controller:
    return Controller(server)


class TestRoundTrip:
    def test_everything_comes_back(self, server: SimZooKeeper, controller: Controller) -> None:
        controller.change(*EVERYTHING)
        assert content(seen(server)) == content(controller.image)
        assert seen(server).topics.keys() == {"t", "u.v_w-x"}
        assert Controller(server).repairs == []

    def test_what_was_taken_back_is_gone(self, server: SimZooKeeper, controller: Controller) -> None:
        controller.change(*EVERYTHING)
        controller.change(
            RemoveTopicRecord(topic_id=id_of("t")),
            a_setting(BROKER, "", "num.io.threads", None),
            a_setting(GROUP, "g/1", "consumer.session.timeout.ms", None),
            a_limit("producer_byte_rate", 0.0, remove=True, user=None),
            RemoveUserScramCredentialRecord(name="ann", mechanism=1),
            *(RemoveAccessControlEntryRecord(id=bytes([number] * 16)) for number in (1, 3)),
            RemoveDelegationTokenRecord(token_id="tOkEn-1_x"),
        )
        assert not seen(server).delegation_tokens
        assert content(seen(server)) == content(controller.image)
        assert not [path for path in server.tree() if "topics/t/" in f"{path}/"]
        assert paths.acl("Topic", 4, "p") not in server.tree()

    @pytest.mark.parametrize("seed", range(12))
    def test_any_history_comes_back_and_so_does_every_prefix_of_it(self, seed: int) -> None:
        server = SimZooKeeper()
        controller = Controller(server)
        history = History(Random(seed))
        for _ in range(12):
            controller.change(*history.records(controller.image), after=lambda: check_valid(seen(server)))
            assert content(seen(server)) == content(controller.image)
        assert content(Controller(server).image) == content(controller.image)

    def test_the_epoch_of_a_partition_is_the_version_of_its_state(
        self, server: SimZooKeeper, controller: Controller
    ) -> None:
        controller.change(*a_topic("t"))
        change = PartitionChangeRecord(partition_id=0, topic_id=id_of("t"), isr=[1])
        controller.change(change, PartitionChangeRecord(partition_id=0, topic_id=id_of("t"), leader=1), change)
        node = server.tree()[paths.state("t", 0)]
        assert (node.version, seen(server).topics["t"].partitions[0].partition_epoch) == (3, 3)
        assert node.data == b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":1,"isr":[1]}'

    def test_epoch_that_is_not_a_version_is_refused(self, controller: Controller) -> None:
        controller.change(*a_topic("t"))
        partition = a_partition("t", 0)
        partition.partition_epoch = 5000
        with pytest.raises(InvariantError, match="from 0 to 5000"):
            controller.change(partition)

    def test_topic_recreated_in_the_change_that_removes_it(self, server: SimZooKeeper, controller: Controller) -> None:
        controller.change(*a_topic("t", 3), a_setting(TOPIC, "t", "a", "1"))
        again = a_partition("t", 0)
        again.topic_id = b"n" * 16
        controller.change(RemoveTopicRecord(topic_id=id_of("t")), TopicRecord(name="t", topic_id=b"n" * 16), again)
        assert content(seen(server)) == content(controller.image)
        assert seen(server).topics["t"].topic_id == b"n" * 16
        assert server.tree()[paths.state("t", 0)].version == 0

    def test_notices_name_what_changed(self, server: SimZooKeeper, controller: Controller) -> None:
        controller.change(*a_topic("t"), a_setting(TOPIC, "t", "a", "1"))
        controller.change(a_setting(TOPIC, "t", "a", "2"), a_limit("x", 1.0, user="b c", client_id="d"), an_acl(1))
        tree = server.tree()
        assert tree["/config/changes/config_change_0000000000"].data == b'{"version":2,"entity_path":"topics/t"}'
        assert b'"users/b%20c/clients/d"' in tree["/config/changes/config_change_0000000001"].data
        assert tree["/kafka-acl-changes/acl_changes_0000000000"].data == b"TOPIC:t"

    def test_limits_are_written_as_apache_kafka_does(self, server: SimZooKeeper, controller: Controller) -> None:
        controller.change(*EVERYTHING)
        tree = server.tree()
        assert tree["/config/users/<default>"].data == b'{"version":1,"config":{"producer_byte_rate":"2048"}}'
        assert b'{"request_percentage":"10.0","SCRAM-SHA-256":"salt=cwA=,' in tree["/config/users/ann"].data
        assert tree["/config/users/ann%2Fb%20c/clients/<default>"].data
        assert tree["/config/ips/%3A%3A1"].data
        assert tree[paths.PRODUCER_ID_BLOCK].data == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'

    def test_broker_registration_content(self, server: SimZooKeeper, controller: Controller) -> None:
        endpoints = (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 1), Endpoint("TLS", "SSL", "::1", 2))
        features = {"metadata.version": VersionRange(7, 25)}
        broker = BrokerImage(3, 0, bytes(16), endpoints, features, "r", False, False, ())
        server.multi(controller.session, [registration(broker, 5)])
        node = server.tree()["/brokers/ids/3"]
        assert node.owner == controller.session
        assert decode_broker("", node.data).timestamp_ms == 5
        found = seen(server).brokers[3]
        assert found == BrokerImage(3, node.created, found.incarnation_id, endpoints, features, "r", False, False, ())
        before = found.incarnation_id
        server.close(controller.session)
        server.multi(server.connect(1000), [registration(broker, 6)])
        assert seen(server).brokers[3].incarnation_id != before


class History:
    """Random changes that a controller could make, each of a few records."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._made = 0

    def records(self, image: MetadataImage) -> list[object]:
        kinds = [self._new_topic, self._new_topic, self._settings, self._limits, self._ids, self._acls]
        if image.topics:
            kinds += [self._moves, self._moves, self._moves, self._grow, self._remove]
        return self._random.choice(kinds)(image)

    def _replicas(self) -> list[int]:
        return self._random.sample(range(1, 6), self._random.randint(1, 3))

    def _new_topic(self, image: MetadataImage) -> list[object]:
        self._made += 1
        name = f"t{self._made}"
        made = a_topic(name, self._random.randint(1, 4), tuple(self._replicas()))
        return [*made, a_setting(TOPIC, name, "retention.ms", "5")] if self._random.random() < 0.5 else made

    def _moves(self, image: MetadataImage) -> list[object]:
        """Elections, changes of the ISR and of replicas, of several partitions and sometimes twice of one."""
        records: list[object] = []
        for _ in range(self._random.randint(1, 4)):
            topic = self._random.choice(list(image.topics.values()))
            index = self._random.randrange(len(topic.partitions))
            replicas = self._replicas()
            records.append(
                PartitionChangeRecord(
                    partition_id=index,
                    topic_id=topic.topic_id,
                    replicas=replicas,
                    isr=replicas[: self._random.randint(1, len(replicas))],
                    leader=self._random.choice([replicas[0], -1]),
                    leader_recovery_state=self._random.randint(0, 1),
                    adding_replicas=replicas[-1:] if self._random.random() < 0.3 else [],
                )
            )
        return records

    def _grow(self, image: MetadataImage) -> list[object]:
        topic = self._random.choice(list(image.topics.values()))
        partition = a_partition("", len(topic.partitions), self._replicas())
        partition.topic_id = topic.topic_id
        return [partition]

    def _remove(self, image: MetadataImage) -> list[object]:
        topic = self._random.choice(list(image.topics.values()))
        return [RemoveTopicRecord(topic_id=topic.topic_id)]

    def _settings(self, image: MetadataImage) -> list[object]:
        value = self._random.choice(["1", "2", None])
        name = self._random.choice(list(image.topics) or [""])
        return [
            a_setting(BROKER, self._random.choice(["", "1"]), "x", value),
            *([a_setting(TOPIC, name, "y", value)] if name else []),
        ]

    def _limits(self, image: MetadataImage) -> list[object]:
        user = self._random.choice(["ann", None])
        remove = self._random.random() < 0.3
        return [
            a_limit("producer_byte_rate", 1.0 * self._random.randint(1, 9), remove=remove, user=user),
            a_limit("request_percentage", self._random.random() * 100, user=user, client_id="c"),
            a_credential("ann", self._random.randint(1, 2)),
        ]

    def _ids(self, image: MetadataImage) -> list[object]:
        return [ProducerIdsRecord(broker_id=2, broker_epoch=1, next_producer_id=image.next_producer_id + 1000)]

    def _acls(self, image: MetadataImage) -> list[object]:
        if image.acls and self._random.random() < 0.4:
            return [RemoveAccessControlEntryRecord(id=self._random.choice(list(image.acls)))]
        number = self._random.randint(1, 200)
        return [] if bytes([number] * 16) in image.acls else [an_acl(number, "p", self._random.choice([3, 4]))]
