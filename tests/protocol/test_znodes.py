"""Znode contents: as Apache Kafka 3.9 writes them, round trips, and strict rejection of invalid data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.errors import KafkaError, ProtocolError
from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.common.kafka.delegation_token import DelegationToken
from ottla.common.platform.endpoint import Endpoint
from ottla.protocol.znodes import acls, brokers, configs, consumers, paths, tokens, topics
from ottla.protocol.znodes.fields import MAX_ZNODE_BYTES, Fields

BROKER = brokers.BrokerRegistration(
    (
        Endpoint("SECURE", "SSL", "h.example", 9093),
        Endpoint("PLAINTEXT", "PLAINTEXT", "h.example", 9092),
        Endpoint("SIX", "PLAINTEXT", "2001:db8::1", 9094),
    ),
    "r1",
    {"metadata.version": (1, 21)},
    1700000000000,
)
ACL = Acl(
    ResourceType.TRANSACTIONAL_ID,
    "x",
    PatternType.PREFIXED,
    "User:ann",
    "*",
    AclOperation.DESCRIBE_CONFIGS,
    Permission.DENY,
)
TOPIC = topics.TopicAssignment(
    bytes(range(16)), {0: topics.Assignment((1, 2, 3), (3,), (1,)), 1: topics.Assignment((2, 1))}
)
UUID = "AAECAwQFBgcICQoLDA0ODw"

PATH = "/some/znode"
TOKEN = DelegationToken("znode", "User:ann b", "User:c", ("User:d",), 1, 3, 2)
OLD_TOKEN = (
    b'{"version":1,"owner":"User%3Aann%20b","renewers":[],"issueTimestamp":1,"maxTimestamp":3,"expiryTimestamp":2,'
    b'"tokenId":"znode"}'
)

Case = tuple[Callable[..., bytes], Callable[..., Any], Any, bytes]

WRITTEN: dict[str, Case] = {
    "broker": (
        brokers.encode_broker,
        brokers.decode_broker,
        BROKER,
        b'{"features":{"metadata.version":{"min_version":1,"max_version":21}},"listener_security_protocol_map":'
        b'{"SECURE":"SSL","PLAINTEXT":"PLAINTEXT","SIX":"PLAINTEXT"},"endpoints":["SECURE://h.example:9093",'
        b'"PLAINTEXT://h.example:9092","SIX://[2001:db8::1]:9094"],"rack":"r1","jmx_port":-1,"port":9092,"host":"h.example",'
        b'"version":5,"timestamp":"1700000000000"}',
    ),
    "controller": (
        brokers.encode_controller,
        brokers.decode_controller,
        brokers.ControllerClaim(3, 1700000000000),
        b'{"version":2,"brokerid":3,"timestamp":"1700000000000","kraftControllerEpoch":-1}',
    ),
    "controller epoch": (brokers.encode_controller_epoch, brokers.decode_controller_epoch, 7, b"7"),
    "cluster id": (
        brokers.encode_cluster_id,
        brokers.decode_cluster_id,
        UUID,
        b'{"version":"1","id":"%s"}' % UUID.encode(),
    ),
    "features": (
        brokers.encode_features,
        brokers.decode_features,
        {"group.version": 1},
        b'{"features":{"group.version":{"max_version_level":1}},"version":2,"status":1}',
    ),
    "producer ids": (
        brokers.encode_producer_ids,
        brokers.decode_producer_ids,
        brokers.ProducerIdBlock(1, 1000, 1999),
        b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}',
    ),
    "topic": (
        topics.encode_topic,
        topics.decode_topic,
        TOPIC,
        b'{"partitions":{"0":[1,2,3],"1":[2,1]},"topic_id":"%s","adding_replicas":{"0":[3]},'
        b'"removing_replicas":{"0":[1]},"version":3}' % UUID.encode(),
    ),
    "state": (
        topics.encode_state,
        topics.decode_state,
        topics.PartitionState(1, 4, (1, 2), 7),
        b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":4,"isr":[1,2]}',
    ),
    "state after an unclean election": (
        topics.encode_state,
        topics.decode_state,
        topics.PartitionState(1, 5, (1,), 7, 1),
        b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":5,"isr":[1],"leader_recovery_state":1}',
    ),
    "settings": (
        configs.encode_config,
        configs.decode_config,
        {"retention.ms": "1", "a": '\u00e9"\n'},
        '{"version":1,"config":{"retention.ms":"1","a":"\u00e9\\"\\n"}}'.encode(),
    ),
    "consumer": (
        consumers.encode_consumer,
        consumers.decode_consumer,
        consumers.ConsumerRegistration({"t": 2}, "static", 1700000000000),
        b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"1700000000000"}',
    ),
    "token": (
        tokens.encode_token,
        tokens.decode_token,
        TOKEN,
        b'{"version":3,"owner":"User%3Aann%20b","tokenRequester":"User%3Ac","renewers":["User%3Ad"],'
        b'"issueTimestamp":1,"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"znode"}',
    ),
    "offset": (consumers.encode_offset, consumers.decode_offset, 2**40, b"1099511627776"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_znodes_match_apache_kafka_and_round_trip(name: str) -> None:
    encode, decode, value, data = WRITTEN[name]
    assert encode(value) == data
    assert decode(PATH, data) == value


def test_requests_of_old_tools_are_read() -> None:
    moves = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
    assert topics.decode_reassignment(PATH, moves) == {("t", 0): (1, 2)}
    elected = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"u","partition":1}]}'
    assert topics.decode_partitions(PATH, elected) == [("t", 0), ("u", 1)]


def test_change_of_settings_matches_apache_kafka() -> None:
    assert configs.encode_change("users/ann/clients/app") == b'{"version":2,"entity_path":"users/ann/clients/app"}'


def test_older_versions_are_read() -> None:
    first = b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"1"}'
    assert brokers.decode_broker(PATH, first).endpoints == (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),)
    second = (
        b'{"version":2,"host":"h","port":1,"jmx_port":-1,"timestamp":"1","endpoints":["SSL://h:2","PLAINTEXT://h:1"]}'
    )
    assert [each.security_protocol for each in brokers.decode_broker(PATH, second).endpoints] == ["SSL", "PLAINTEXT"]
    assert brokers.decode_controller(PATH, b'{"version":1,"brokerid":0,"timestamp":"1"}') == (0, 1, -1)
    made = topics.decode_topic(PATH, b'{"version":1,"partitions":{"1":[2],"0":[1]}}')
    assert list(made.partitions.items()) == [(0, topics.Assignment((1,))), (1, topics.Assignment((2,)))]
    assert made.topic_id is None
    ranges = b'{"features":{"f":{"min_version_level":1,"max_version_level":3}},"version":1,"status":%d}'
    assert brokers.decode_features(PATH, ranges % 1) == {"f": 3}
    assert brokers.decode_features(PATH, ranges % 0) == {}
    assert configs.decode_config(PATH, b"") == {}
    assert tokens.decode_token(PATH, OLD_TOKEN) == TOKEN._replace(requester="User:ann b", renewers=())


def test_broker_without_plain_listener_has_no_legacy_address() -> None:
    data = brokers.encode_broker(BROKER._replace(endpoints=BROKER.endpoints[:1], rack=None))
    assert b'"port":-1,"host":null' in data
    assert b"rack" not in data


def test_ten_thousand_partitions_are_sorted() -> None:
    assigned = topics.TopicAssignment(bytes(16), {n: topics.Assignment((n % 3, n % 3 + 1)) for n in range(10_000)})
    data = topics.encode_topic(assigned)
    assert len(data) < 512 * 1024
    assert list(topics.decode_topic(PATH, data).partitions.items()) == list(assigned.partitions.items())


REFUSED = [
    (brokers.decode_broker, b""),
    (brokers.decode_broker, b"[]"),
    (brokers.decode_broker, b"{" * 100_000),
    (brokers.decode_broker, b"[" * MAX_ZNODE_BYTES),
    (brokers.decode_broker, b'{"version":6,"endpoints":["A://h:1"]}'),
    (brokers.decode_broker, b'{"version":5,"endpoints":[]}'),
    (brokers.decode_broker, b'{"version":5,"endpoints":["A://h:1"],"listener_security_protocol_map":{"A":"MAGIC"}}'),
    (brokers.decode_broker, b'{"version":5,"endpoints":["A://h:1"],"listener_security_protocol_map":{"B":"SSL"}}'),
    (brokers.decode_broker, b'{"version":5,"endpoints":["SSL://h:1","SSL://h:2"]}'),
    (brokers.decode_broker, b'{"version":5,"endpoints":["SSL://h:65536"]}'),
    (brokers.decode_broker, b'{"version":1,"host":"h","port":true}'),
    (brokers.decode_broker, b'{"version":1,"host":"\\ud800","port":1}'),
    (brokers.decode_controller, b'{"version":2,"brokerid":1.0,"timestamp":"1"}'),
    (brokers.decode_controller, b'{"version":2,"brokerid":NaN,"timestamp":"1"}'),
    (brokers.decode_controller, b'{"version":2,"brokerid":1,"brokerid":2,"timestamp":"1"}'),
    (brokers.decode_controller, b'{"version":2,"brokerid":%s,"timestamp":"1"}' % (b"9" * 5000)),
    (brokers.decode_controller, b'{"version":2,"brokerid":2147483648,"timestamp":"1"}'),
    (brokers.decode_controller_epoch, b"-1"),
    (brokers.decode_controller_epoch, b"+1"),
    (brokers.decode_controller_epoch, b"01"),
    (brokers.decode_controller_epoch, b"1\n"),
    (brokers.decode_controller_epoch, "\u0661".encode()),
    (brokers.decode_controller_epoch, b"2147483648"),
    (brokers.decode_cluster_id, b'{"version":"1","id":"../../etc"}'),
    (brokers.decode_cluster_id, b'{"version":"1","id":"%s"}' % (b"a" * 23)),
    (brokers.decode_features, b'{"features":{"f":{"max_version_level":40000}},"version":2,"status":1}'),
    (brokers.decode_features, b'{"features":{},"version":2,"status":2}'),
    (brokers.decode_producer_ids, b'{"version":1,"broker":1,"block_start":"2","block_end":"1"}'),
    (brokers.decode_producer_ids, b'{"version":1,"broker":1,"block_start":1,"block_end":2}'),
    (brokers.decode_producer_ids, b'{"version":1,"broker":1,"block_start":"0","block_end":"9223372036854775807"}'),
    (topics.decode_topic, b'{"version":3,"topic_id":"short","partitions":{}}'),
    (topics.decode_topic, b'{"version":3,"partitions":{"0":[1],"2":[1]}}'),
    (topics.decode_topic, b'{"version":3,"partitions":{"00":[1]}}'),
    (topics.decode_topic, b'{"version":3,"partitions":{"0":[1,1]}}'),
    (topics.decode_topic, b'{"version":3,"partitions":{"0":[]}}'),
    (topics.decode_topic, b'{"version":3,"partitions":{"0":[-1]}}'),
    (topics.decode_topic, b'{"version":3,"partitions":{"0":[1]},"adding_replicas":{"0":[2]}}'),
    (topics.decode_state, b'{"version":1,"leader":3,"leader_epoch":0,"isr":[1],"controller_epoch":1}'),
    (topics.decode_state, b'{"version":1,"leader":1,"leader_epoch":-1,"isr":[1],"controller_epoch":1}'),
    (topics.decode_state, b'{"version":2,"leader":1,"leader_epoch":0,"isr":[1],"controller_epoch":1}'),
    (topics.decode_reassignment, b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[]}]}'),
    (topics.decode_partitions, b'{"version":1,"partitions":[["t",0]]}'),
    (configs.decode_config, b'{"version":1,"config":{"a":1}}'),
    (configs.decode_config, b'{"version":1,"config":{"\\udc00":"1"}}'),
    (configs.decode_config, b'\xff\xfe{"version":1,"config":{}}'),
    (configs.decode_config, b" " * (MAX_ZNODE_BYTES + 1)),
    (tokens.decode_token, OLD_TOKEN.replace(b"znode", b"other")),
    (tokens.decode_token, OLD_TOKEN.replace(b"User%3A", b"")),
    (tokens.decode_token, OLD_TOKEN.replace(b"%20", b" ")),
    (tokens.decode_token, OLD_TOKEN.replace(b"[]", b"[1]")),
    (consumers.decode_consumer, b'{"version":1,"subscription":{"t":0},"pattern":"static","timestamp":"1"}'),
    (consumers.decode_consumer, b'{"version":1,"subscription":{"t":2000000000},"pattern":"static","timestamp":"1"}'),
    (consumers.decode_consumer, b'{"version":1,"subscription":{"t":1,"u":1},"pattern":"white_list","timestamp":"1"}'),
    (consumers.decode_consumer, b'{"version":1,"subscription":{"t":1},"pattern":"other","timestamp":"1"}'),
    (consumers.decode_offset, b"-1"),
    (consumers.decode_offset, b""),
]


@pytest.mark.parametrize(("decode", "data"), REFUSED, ids=[f"{each[0].__name__}-{n}" for n, each in enumerate(REFUSED)])
def test_invalid_znodes_are_rejected(decode: Callable[[str, bytes], Any], data: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"^znode /some/znode") as refused:
        decode(PATH, data)
    assert len(str(refused.value)) < 200


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_mutated_znodes_decode_or_are_rejected(data: st.DataObject) -> None:
    _, decode, _, written = WRITTEN[data.draw(st.sampled_from(sorted(WRITTEN)))]
    start = data.draw(st.integers(0, len(written)))
    end = data.draw(st.integers(start, min(len(written), start + 12)))
    middle = data.draw(
        st.one_of(st.binary(max_size=6), st.sampled_from([b"null", b"-1", b'"', b"[]", b"{}", b"1e9", b"\\u0000"]))
    )
    with suppress(ProtocolError):
        decode(PATH, written[:start] + middle + written[end:])


def test_errors_contain_no_znode_data() -> None:
    secret = b'{"version":1,"config":{"sasl.jaas.config":["secret"]}}'
    with pytest.raises(ProtocolError) as refused:
        configs.decode_config("/config/brokers/1", secret)
    assert "secret" not in str(refused.value)
    assert "/config/brokers/1" in str(refused.value)


class TestAcls:
    PATH = "/kafka-acl-extended/prefixed/TransactionalId/x"
    DATA = (
        b'{"version":1,"acls":[{"principal":"User:ann","permissionType":"Deny","operation":"DescribeConfigs",'
        b'"host":"*"}]}'
    )

    def test_as_apache_kafka_writes_them(self) -> None:
        assert acls.encode_acls([ACL]) == self.DATA
        assert acls.decode_acls(self.PATH, self.DATA, *ACL[:1], ACL.pattern_type, "x") == [ACL]
        assert paths.acl(ResourceType.TRANSACTIONAL_ID.shown, ACL.pattern_type, "x") == self.PATH

    @pytest.mark.parametrize("operation", [each for each in AclOperation if each != AclOperation.ANY])
    def test_every_operation_round_trips(self, operation: AclOperation) -> None:
        acl = ACL._replace(operation=operation, permission=Permission.ALLOW)
        assert acls.decode_acls(self.PATH, acls.encode_acls([acl]), acl.resource_type, acl.pattern_type, "x") == [acl]

    @pytest.mark.parametrize(
        "data", [DATA.replace(b"Deny", b"deny"), DATA.replace(b"User:ann", b"ann"), b'{"version":2,"acls":[]}']
    )
    def test_invalid_acls_are_rejected(self, data: bytes) -> None:
        with pytest.raises(ProtocolError, match="TransactionalId/x"):
            acls.decode_acls(self.PATH, data, ACL.resource_type, ACL.pattern_type, "x")

    @pytest.mark.parametrize(
        ("pattern", "data"),
        [
            (PatternType.LITERAL, b"TOPIC:a:b"),
            (PatternType.PREFIXED, b'{"version":1,"resourceType":"TOPIC","name":"a:b","patternType":"PREFIXED"}'),
        ],
    )
    def test_notices(self, pattern: PatternType, data: bytes) -> None:
        assert acls.encode_acl_change(ResourceType.TOPIC, pattern, "a:b") == data


class TestPaths:
    @pytest.mark.parametrize("name", ["ann", "a b", "a/b", "*", "~", "+", "%2F", "\u00e9", "CN=x, O=y", "."])
    def test_sanitized_names_round_trip(self, name: str) -> None:
        step = paths.sanitized(name)
        assert "/" not in step
        assert paths.desanitized(PATH, step) == name

    def test_sanitized_as_apache_kafka_does(self) -> None:
        assert paths.sanitized("a b*~+/") == "a%20b%2A%7E%2B%2F"
        assert paths.sanitized(None) == "<default>"
        assert paths.sanitized("<default>") == "%3Cdefault%3E"
        assert paths.desanitized(PATH, "<default>") is None

    @pytest.mark.parametrize("step", ["a b", "%2f", "%zz", "%ff", "", "<other>"])
    def test_unsanitized_path_component_is_rejected(self, step: str) -> None:
        with pytest.raises(ProtocolError):
            paths.desanitized(PATH, step)

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "\0", "\x1f", "\x85", "\ue000", "\uffff"])
    def test_names_invalid_in_zookeeper_are_rejected(self, name: str) -> None:
        with pytest.raises(KafkaError, match="ZooKeeper can't store"):
            paths.acl("Group", PatternType.LITERAL, name)

    def test_documented_paths(self) -> None:
        assert paths.broker(1) == "/brokers/ids/1"
        assert paths.state("t", 0) == "/brokers/topics/t/partitions/0/state"
        assert list(paths.parents(paths.state("t", 0)))[:3] == ["/brokers", "/brokers/topics", "/brokers/topics/t"]
        assert paths.deletion("t") == "/admin/delete_topics/t"
        assert paths.user_client("ann", None) == "/config/users/ann/clients/<default>"
        assert paths.consumer_ids("g") == "/consumers/g/ids"
        assert paths.consumer_offset("g", "t", 3) == "/consumers/g/offsets/t/3"
        assert paths.consumer_owner("g", "t", 3) == "/consumers/g/owners/t/3"


def test_unknown_fields_are_ignored() -> None:
    assert Fields.parsed(PATH, b'{"version":1,"x":[1.5,{"y":1e999}]}', range(1, 2)).names() == ["version", "x"]
