"""Clients with quotas: answered at once with the throttle time, their connections muted, others unaffected."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import pytest

from ottla.app.clock import SystemClock
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredEntity,
    AlterQuotaOperation,
    AlterQuotasEntry,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.quota.limits import Group

from .harness import Connection, Server, fetch_request, fetched, produce_request
from .share_groups import MemoryPersister, acquired, enable_share_groups, share_fetch

CLIENT = (("client-id", "tester"),)
VALUE = bytes(1000)


class MovedClock(SystemClock):
    """A clock that advances its monotonic time on the test's command."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class LimitedServer:
    """A server with quotas for its clients."""

    def __init__(self, server: Server, clock: MovedClock) -> None:
        self.server = server
        self.clock = clock
        self.quotas = server.broker.parts.quotas
        server.broker.follow_dispatcher(self._use)

    def _use(self, dispatcher) -> None:
        self.dispatcher = dispatcher

    def connect(self) -> Connection:
        connection = self.server.connect()
        connection.dispatcher = lambda: self.dispatcher
        return connection

    def limit(self, entity=CLIENT, **values: float | None) -> None:
        """Set quotas; None removes one."""
        ops = [AlterQuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
        named = [AlteredEntity(entity_type=kind, entity_name=name) for kind, name in entity]
        request = AlterClientQuotasRequest(entries=[AlterQuotasEntry(entity=named, ops=ops)])
        (entry,) = self.server.connect().ask(request, 1).entries
        assert entry.error_code == 0, entry.error_message


@pytest.fixture
def limited(make_server: Callable[..., Server]) -> LimitedServer:
    clock = MovedClock()
    return LimitedServer(make_server(clock=clock), clock)


def produced(client: Connection, topic: bytes, count: int = 1, acks: int = -1):
    return client.ask(produce_request(topic, *[VALUE] * count, acks=acks), 13)


def test_dispatcher_is_not_wrapped_without_quotas(limited):
    plain = limited.server.broker.dispatcher
    assert limited.dispatcher is plain
    limited.limit(producer_byte_rate=1000)
    assert limited.dispatcher is not plain
    limited.limit(producer_byte_rate=None)
    assert limited.dispatcher is plain
    limited.limit((("ip", None),), connection_creation_rate=5)
    assert limited.dispatcher is plain, "address quotas are applied by the listener"


def test_software_of_a_client_with_quotas_is_kept(make_server):
    clock = MovedClock()
    limited = LimitedServer(make_server(clock=clock, receives_telemetry=True), clock)
    limited.limit(consumer_byte_rate=1e9)
    client = limited.connect()
    answer = client.ask(ApiVersionsRequest(client_software_name="tool", client_software_version="1.0"), 4)
    assert answer.error_code == 0
    assert client.channel.client_software == ("tool", "1.0")


class TestProduce:
    def test_a_producer_above_its_rate_is_answered_and_muted(self, limited):
        client = limited.connect()
        topic = client.create_topic("t")
        limited.limit(producer_byte_rate=1000)
        assert produced(client, topic, 8).throttle_time_ms == 0
        assert client.channel.muted_s is None
        response = produced(client, topic, 8)
        assert response.responses[0].partition_responses[0].error_code == 0
        assert response.throttle_time_ms == 11_000, "until the first ones expire"
        assert client.channel.muted_s == response.throttle_time_ms / 1000

    def test_produce_without_response_is_muted(self, limited):
        client = limited.connect()
        topic = client.create_topic("t")
        limited.limit(producer_byte_rate=1000)
        client.send(produce_request(topic, *[VALUE] * 20, acks=0), 13)
        assert client.channel.muted_s > 10

    def test_parked_produce_is_counted_when_it_is_answered(self, limited):
        client = limited.connect()
        topic = client.create_topic("t", flush_messages="1")
        limited.limit(producer_byte_rate=1000)
        assert not client.send(produce_request(topic, *[VALUE] * 20), 13)
        assert client.channel.muted_s is None
        assert client.answer().throttle_time_ms > 10_000
        assert (client.channel.muted_s or 0) > 10

    def test_group_shares_its_limit_and_others_are_unaffected(self, limited):
        first, second, other = limited.connect(), limited.connect(), limited.connect()
        topic = first.create_topic("t")
        other.client_id = "other"
        limited.limit(producer_byte_rate=1000)
        produced(first, topic, 8)
        assert produced(second, topic, 8).throttle_time_ms > 0
        for _ in range(5):
            assert produced(other, topic, 20).throttle_time_ms == 0
        assert other.channel.muted_s is None

    @pytest.mark.parametrize("connections", [1, 10])
    def test_group_ignoring_throttle_times_stays_within_quota(self, limited, connections):
        """Each connection has its next request in its socket when its mute is over."""
        clients = [limited.connect() for _ in range(connections)]
        topic = clients[0].create_topic("t")
        rate = 102_000  # of which a request has a tenth, so ten connections have a second's worth under way
        limited.limit(producer_byte_rate=rate)
        begin_s, sent = limited.clock.now_s, 0
        due = [(begin_s, number) for number in range(connections)]
        while (now_s := due[0][0]) < begin_s + 30:
            _, number = heapq.heappop(due)
            limited.clock.now_s, channel = now_s, clients[number].channel
            more, channel.more = channel.more, None
            wait_s = 0.0 if more is None else more()
            if wait_s > 0:
                channel.more = more
            else:
                before = channel.bytes_in
                channel.muted_s = None
                produced(clients[number], topic, 10)
                sent += channel.bytes_in - before
                wait_s = channel.muted_s or 0.001 * connections
            heapq.heappush(due, (now_s + wait_s, number))
        quota = 30 * rate
        assert quota <= sent <= 1.10 * quota, "a tenth of the windows"

    def test_mute_is_extended_by_other_usage_up_to_a_bound(self, limited):
        first, second = limited.connect(), limited.connect()
        topic = first.create_topic("t")
        limited.limit(producer_byte_rate=1000)
        produced(first, topic, 12)
        begin_s, announced_s = limited.clock.now_s, first.channel.muted_s
        limited.clock.now_s += announced_s
        assert first.channel.more() == 0
        produced(second, topic, 12)
        assert first.channel.more() == 11.0
        limited.clock.now_s = begin_s + announced_s + 10
        produced(second, topic, 30)
        assert first.channel.more() == pytest.approx(1.0), "bounded, since clients time out"
        limited.clock.now_s += 1
        assert first.channel.more() <= 0

    @pytest.mark.parametrize("version", [3, 8, 9, 12])
    def test_throttle_time_is_in_each_version(self, limited, version):
        client = limited.connect()
        client.create_topic("t")
        limited.limit(producer_byte_rate=1000)
        assert client.ask(produce_request("t", *[VALUE] * 20), version).throttle_time_ms > 10_000


class TestFetch:
    @pytest.fixture
    def client(self, limited):
        client = limited.connect()
        client.topic = client.create_topic("t")
        for _ in range(20):
            produced(client, client.topic)
        limited.limit(consumer_byte_rate=1000)
        return client

    def ask(self, client, offset, session=(0, -1), **fields):
        return client.ask(fetch_request((client.topic, 0, offset), session=session, **fields), 13)

    def test_consumer_above_its_rate_gets_an_empty_response(self, limited, client):
        first = self.ask(client, 0)
        records = fetched(first)[client.topic, 0].records
        assert first.throttle_time_ms == 0
        assert 8000 < len(records) <= 10_000, "the amount of all windows, and no more"
        second = self.ask(client, 9)
        assert second.responses == []
        assert second.error_code == 0
        assert client.channel.muted_s == second.throttle_time_ms / 1000 > 7
        limited.clock.now_s += client.channel.muted_s + 4
        assert fetched(self.ask(client, 9))[client.topic, 0].records

    def test_unsent_bytes_are_not_counted(self, limited, client):
        self.ask(client, 0)
        waits = {self.ask(client, 9).throttle_time_ms for _ in range(10)}
        assert len(waits) == 1

    def test_a_full_fetch_that_waits_has_no_session(self, limited, client):
        self.ask(client, 0)
        response = self.ask(client, 9, session=(0, 0))
        assert (response.session_id, response.responses) == (0, [])
        assert len(limited.server.broker.parts.sessions) == 0

    def test_throttled_incremental_fetch_keeps_its_session(self, limited, client):
        opened = self.ask(client, 0, session=(0, 0))
        session_id = opened.session_id
        assert session_id
        waiting = self.ask(client, 9, session=(session_id, 1))
        assert (waiting.session_id, waiting.responses) == (session_id, [])
        limited.clock.now_s += 12
        request = fetch_request(session=(session_id, 2))
        assert fetched(client.ask(request, 13))[client.topic, 0].records

    def test_batch_above_the_limit_is_sent_after_other_usage_expired(self, limited, client):
        limited.limit(consumer_byte_rate=10)
        response = self.ask(client, 0)
        assert fetched(response)[client.topic, 0].records
        assert client.channel.muted_s > 90
        assert self.ask(client, 1).responses == []

    def test_parked_fetch_checks_the_quota_when_answered(self, limited, client):
        self.ask(client, 0)
        assert not client.send(fetch_request((client.topic, 0, 20), max_wait_ms=20_000, session=(0, -1)), 13)
        other = limited.connect()
        other.client_id = "other"
        produced(other, client.topic, 3)
        response = client.answer()
        assert response.responses == []
        assert response.throttle_time_ms > 0

    def test_old_version_is_throttled(self, limited, client):
        request = fetch_request(("t", 0, 0), max_bytes=1 << 20)
        first = client.ask(request, 3)
        assert fetched(first)["t", 0].records
        second = client.ask(request, 3)
        assert (second.responses, second.throttle_time_ms > 0) == ([], True)


class TestShareFetch:
    def test_throttled_member_acquires_no_records(self, limited):
        member, other = limited.connect(), limited.connect()
        topic = member.create_topic("t")
        for _ in range(30):
            produced(member, topic)
        enable_share_groups(limited.server, MemoryPersister())
        limited.limit(consumer_byte_rate=1000)
        first = member.ask(share_fetch((topic, 0), epoch=0), 2)
        assert (acquired(first), first.throttle_time_ms) == ({0: [(0, 8, 1)]}, 0)
        assert member.channel.muted_s is None
        second = member.ask(share_fetch(epoch=1), 2)
        assert acquired(second) == {0: [(9, 17, 1)]}, "sent, since it is acquired"
        assert member.channel.muted_s == second.throttle_time_ms / 1000 > 7
        third = other.ask(share_fetch((topic, 0), epoch=0, member="other"), 2)
        assert (acquired(third), other.channel.muted_s) == ({}, third.throttle_time_ms / 1000)
        assert not limited.connect().ask(ApiVersionsRequest(client_software_name="a"), 3).throttle_time_ms
        limited.clock.now_s += second.throttle_time_ms / 1000 + 4
        assert acquired(member.ask(share_fetch(epoch=2), 2)) == {0: [(18, 26, 1)]}

    def test_parked_share_fetch_checks_the_quota_when_answered(self, limited):
        member = limited.connect()
        topic = member.create_topic("t")
        enable_share_groups(limited.server, MemoryPersister())
        limited.limit(consumer_byte_rate=1000)
        assert not member.send(share_fetch((topic, 0), epoch=0), 2)
        limited.quotas.fetch.of("ANONYMOUS", "tester", limited.clock.now_s).record(20_000, limited.clock.now_s)
        producer = limited.connect()
        producer.client_id = "other"
        produced(producer, topic)
        answer = member.answer()
        assert (acquired(answer), answer.throttle_time_ms > 0) == ({}, True)


class TestRequestTime:
    def test_request_time_quota_throttles_a_window_at_most(self, limited, monkeypatch):
        client = limited.connect()
        handle = limited.server.broker.dispatcher.handle

        def slow(*arguments):
            limited.clock.now_s += 2.0
            return handle(*arguments)

        monkeypatch.setattr(type(limited.server.broker.dispatcher), "handle", lambda _, *arguments: slow(*arguments))
        limited.limit(request_percentage=50)
        assert client.ask(MetadataRequest(topics=[]), 9).throttle_time_ms == 0
        waits = [client.ask(MetadataRequest(topics=[]), 9).throttle_time_ms for _ in range(3)]
        assert waits[-1] == 1000
        assert client.channel.muted_s == 1.0

    def test_throttle_time_is_in_the_response_of_any_api(self, limited):
        client = limited.connect()
        limited.limit(request_percentage=1)
        client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
        use = limited.quotas.request.of("ANONYMOUS", "tester", limited.clock.now_s)
        use.record(1e6, limited.clock.now_s)
        for version in (0, 2, 3):
            request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
            response = client.ask(request, version)
            assert response.api_keys
            assert response.throttle_time_ms == (1000 if version else 0)
            assert client.channel.muted_s == 1.0


class TestChanges:
    def test_current_mute_is_recomputed_on_quota_changes(self, limited):
        client = limited.connect()
        topic = client.create_topic("t")
        limited.limit(producer_byte_rate=1000)
        produced(client, topic, 30)
        assert client.channel.muted_s > 20
        limited.limit(producer_byte_rate=2000)
        assert client.channel.muted_s == 11.0
        limited.limit(producer_byte_rate=100_000)
        assert client.channel.muted_s == 0
        produced(client, topic, 30)
        limited.limit(producer_byte_rate=500)
        assert client.channel.muted_s == 0, "an unmuted client is checked at its next request"

    def test_removed_quota_ends_the_mute(self, limited):
        client = limited.connect()
        topic = client.create_topic("t")
        limited.limit(producer_byte_rate=1000)
        produced(client, topic, 30)
        limited.limit(producer_byte_rate=None)
        assert client.channel.muted_s == 0
        assert produced(client, topic, 30).throttle_time_ms == 0

    def test_a_more_specific_limit_takes_over(self, limited):
        client = limited.connect()
        topic = client.create_topic("t")
        limited.limit((("user", None),), producer_byte_rate=1000)
        assert produced(client, topic, 30).throttle_time_ms > 0
        limited.limit((("user", "ANONYMOUS"), ("client-id", "tester")), producer_byte_rate=100_000)
        assert client.channel.muted_s == 0
        assert produced(client, topic, 30).throttle_time_ms == 0

    def test_quotas_survive_a_restart(self, limited):
        limited.limit(producer_byte_rate=1000)
        limited.server.restart()
        again = LimitedServer(limited.server, limited.clock)
        client = again.connect()
        topic = client.create_topic("t")
        assert produced(client, topic, 30).throttle_time_ms > 0


class TestMutations:
    def test_client_above_its_mutation_quota_is_refused_and_muted(self, limited):
        client = limited.connect()
        limited.limit(controller_mutation_rate=1)

        def create(name, partitions, version=7):
            topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            return client.ask(CreateTopicsRequest(topics=[topic]), version)

        assert create("a", 30).topics[0].error_code == 0
        assert client.channel.muted_s is None
        refused = create("b", 1)
        assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert refused.throttle_time_ms == 19_000
        assert client.channel.muted_s == refused.throttle_time_ms / 1000
        limited.clock.now_s += 1
        old = create("b", 1, version=5)
        assert old.topics[0].error_code == 0
        assert old.throttle_time_ms == 19_000
        grown = client.ask(CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="b", count=2)]), 3)
        assert grown.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        deleted = client.ask(DeleteTopicsRequest(topic_names=["b"]), 5)
        assert deleted.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert deleted.throttle_time_ms > 0
        other = limited.connect()
        other.client_id = "other"
        assert other.ask(DeleteTopicsRequest(topic_names=["b"]), 5).responses[0].error_code == 0

    def test_auto_created_topics_are_charged_to_the_client(self, limited):
        limited.limit(controller_mutation_rate=1)
        image = lambda: limited.server.broker.image  # noqa: E731
        under_way = limited.server.broker.contexts.topics.on_demand

        def ask_for(client, *names):
            topics = [MetadataRequestTopic(name=name) for name in names]
            client.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 9)
            limited.server.run_until(lambda: not under_way)

        client, other = limited.connect(), limited.connect()
        other.client_id = "other"
        names = [f"t{number}" for number in range(30)]
        ask_for(client, *names)
        made = [name for name in names if name in image().topics]
        assert len(made) == 12, "the tokens of all windows at once, and the last may overdraw"
        ask_for(client, names[-1])
        assert names[-1] not in image().topics
        ask_for(other, names[-1])
        assert names[-1] in image().topics
        limited.clock.now_s += 20
        ask_for(client, names[-2])
        assert names[-2] in image().topics


def test_groups_have_metrics_while_they_are_limited(limited):
    client = limited.connect()
    topic = client.create_topic("t")
    limited.limit(producer_byte_rate=1000)
    produced(client, topic, 30)
    labels = Group(None, "tester").labels
    registry = limited.server.registry
    assert labels == {"user": "", "client_id": "tester"}
    assert 3000 < registry.gauge("kafka_server_produce_byte_rate", "", labels).current() < 3300
    assert registry.gauge("kafka_server_produce_throttle_time", "", labels).current() > 20_000
    limited.limit(producer_byte_rate=None)
    families = {family.name: family for family in registry.families()}
    assert not families["kafka_server_produce_byte_rate"].series


def test_a_closed_connection_is_forgotten(limited):
    client = limited.connect()
    topic = client.create_topic("t")
    limited.limit(producer_byte_rate=1000)
    produced(client, topic)
    assert len(limited.dispatcher._held) == 1
    limited.dispatcher.connection_closed(client.channel)
    assert not limited.dispatcher._held
