"""A real broker on a temporary directory, without sockets: requests go to its dispatcher over a channel in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ottla.app.clock import SystemClock, SystemRng
from ottla.app.disk import RealDisk
from ottla.app.pool import ThreadPool
from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import ErrorCode, ProtocolError
from ottla.common.kafka.acl import ANONYMOUS
from ottla.common.platform.channel import Dispatcher, Part
from ottla.common.platform.clock import Clock
from ottla.common.platform.endpoint import Endpoint, ListenerInfo
from ottla.common.platform.runtime import NodeRuntime
from ottla.coordinator.runtime import CoordinatorState
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.registry import API
from ottla.record.builder import RecordData, build_batch
from ottla.server.broker import Broker

LISTENER = "PLAINTEXT"
KEYS = {spec.request: spec.key for spec in API.values()}
ANSWER_TIMEOUT_S = 60.0
"""Long, since tests at low priority on a busy machine may get hardly any CPU time for seconds."""


class MemoryChannel:
    """The broker's view of a connection; stores the responses."""

    def __init__(self, channel_id: int) -> None:
        self.id = channel_id
        self.client_host = "127.0.0.1"
        self.client_port = 40_000 + channel_id
        self.client_software: tuple[str, str] | None = None
        self.listener = ListenerInfo(LISTENER, LISTENER)
        self.principal = ANONYMOUS
        self.closed = False
        self.close_reason: str | None = None
        self.answers: list[bytes] = []
        self.muted_s: float | None = None
        self.more: Callable[[], float] | None = None
        self.bytes_in = 0

    def mute(self, duration_s: float, *, restart: bool = False, more: Callable[[], float] | None = None) -> None:
        self.muted_s = duration_s
        self.more = more

    def respond(self, parts: list[Part]) -> None:
        data = join(parts)
        if not self.closed:
            self.answers.append(data)

    def close(self, reason: str) -> None:
        self.closed = True
        self.close_reason = reason


def join(parts: Sequence[Part]) -> bytes:
    """The bytes of a response; releases its regions."""
    out = bytearray()
    for part in parts:
        if isinstance(part, bytes | bytearray | memoryview):
            out += part
            continue
        data = bytearray(part.length)
        done = 0
        with memoryview(data) as view:
            while done < len(data):
                count = part.read_into(view[done:], done)
                assert count > 0
                done += count
        part.release()
        out += data
    return bytes(out)


class Connection:
    """A client that speaks in messages. `send` may leave a request parked, `answer` waits for it."""

    def __init__(self, server: Server, channel: MemoryChannel) -> None:
        self.server = server
        self.channel = channel
        self.client_id = "tester"
        self.dispatcher: Callable[[], Dispatcher] = lambda: server.broker.dispatcher
        self._correlation_id = 100
        self._pending: list[tuple[int, int, int]] = []

    def send(self, message: object, version: int) -> bool:
        """Send a request to the broker; returns whether it was answered at once."""
        key = KEYS[type(message)]
        self._correlation_id += 1
        frame = bytearray(encode_request(key, version, self._correlation_id, self.client_id, message))
        self._pending.append((key, version, self._correlation_id))
        self.channel.bytes_in += len(frame) - 4
        return self.send_bytes(frame[4:])

    def send_bytes(self, frame: bytes | bytearray) -> bool:
        """Like `send`, for bytes without size prefix; a ProtocolError closes the channel, as in a connection."""
        buffer = bytearray(b"before" + frame + b"behind")
        try:
            parts = self.dispatcher().handle(self.channel, buffer, 6, 6 + len(frame))
        except ProtocolError as error:
            self.channel.close(str(error))
            return False
        if parts is None:
            return False
        self.channel.answers.append(join(parts))
        return True

    def answer(self) -> Any:
        """The response of the oldest request without one."""
        self.server.run_until(lambda: bool(self.channel.answers) or self.channel.closed)
        key, version, correlation_id = self._pending.pop(0)
        assert self.channel.answers, f"closed: {self.channel.close_reason}"
        data = self.channel.answers.pop(0)
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        got, message = decode_response(key, version, data[4:])
        assert got == correlation_id
        return message

    def ask(self, message: object, version: int) -> Any:
        """Send and wait."""
        self.send(message, version)
        return self.answer()

    def disconnect(self) -> None:
        self.channel.closed = True
        self.server.broker.dispatcher.connection_closed(self.channel)

    # --- common requests of tests ---------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic (config names with underscores for dots); returns its id."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        (result,) = self.ask(CreateTopicsRequest(topics=[topic]), 7).topics
        assert result.error_code == 0, result.error_message
        return bytes(result.topic_id)

    def coordinate(self, *keys: str, key_type: int = 0) -> None:
        """Find the coordinator of these keys, and wait until all its partitions are loaded."""
        found = self.ask(FindCoordinatorRequest(coordinator_keys=list(keys), key_type=key_type), 6).coordinators
        assert [each.error_code for each in found] == [ErrorCode.NONE] * len(keys), found
        parts = self.server.broker.parts
        runtime = parts.transactions.runtime if key_type else parts.groups.runtime
        self.server.run_until(lambda: runtime.state_counts()[CoordinatorState.ACTIVE] == runtime.partition_count)

    def produce(
        self, topic: str | bytes, *values: bytes, partition: int = 0, acks: int = -1, version: int = 0, **batch: Any
    ) -> PartitionProduceResponse:
        """Append one batch; the version follows from name or id unless given."""
        request = produce_request(topic, *values, partition=partition, acks=acks, **batch)
        response = self.ask(request, version or (13 if isinstance(topic, bytes) else 12))
        return response.responses[0].partition_responses[0]


def batch_of(*values: bytes, **batch: Any) -> bytes:
    timestamp = batch.pop("timestamp", 1_700_000_000_000)
    key = batch.pop("key", None)
    return bytes(build_batch([RecordData(timestamp + i, key, value) for i, value in enumerate(values)], **batch))


def produce_request(
    topic: str | bytes, *values: bytes, partition: int = 0, acks: int = -1, records: bytes | None = None, **batch: Any
) -> ProduceRequest:
    data = records if records is not None else batch_of(*values, **batch)
    row = TopicProduceData(partition_data=[PartitionProduceData(index=partition, records=data)])
    if isinstance(topic, bytes):
        row.topic_id = topic
    else:
        row.name = topic
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[row])


def fetch_request(
    *wanted: tuple[str | bytes, int, int],
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[tuple[str | bytes, int]] = (),
    **fields: Any,
) -> FetchRequest:
    """`wanted` are (topic, partition, offset)."""

    def named(cls: Any, topic: str | bytes, **more: Any) -> Any:
        return cls(**({"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}), **more)

    partition_fields = {
        name: fields.pop(name) for name in ("current_leader_epoch", "last_fetched_epoch") if name in fields
    }
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            named(
                FetchTopic,
                topic,
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        **partition_fields,
                    )
                ],
            )
            for topic, index, offset in wanted
        ],
        forgotten_topics_data=[named(ForgottenTopic, topic, partitions=[index]) for topic, index in forgotten],
        **fields,
    )


def fetched(response: FetchResponse) -> dict[tuple[str | bytes, int], Any]:
    """The partitions of a fetch response."""
    return {
        (topic.topic or bytes(topic.topic_id), partition.partition_index): partition
        for topic in response.responses
        for partition in topic.partitions
    }


class Server:
    """A broker with its loop; restarts keep the directory."""

    def __init__(
        self,
        directory: Path,
        disk: RealDisk | None = None,
        /,
        *,
        clock: Clock | None = None,
        receives_telemetry: bool = False,
        **settings: str,
    ) -> None:
        self.directory = directory
        self.receives_telemetry = receives_telemetry
        self.clock = clock or SystemClock()
        self.disk = disk or RealDisk()
        self.settings = {"log.dirs": str(directory / "data"), **{k.replace("_", "."): v for k, v in settings.items()}}
        self.loop = asyncio.new_event_loop()
        self.start()

    def start(self) -> None:
        config, _ = BrokerConfig.parse(self.settings)
        self.registry = MetricsRegistry()
        self.pool = ThreadPool(self.loop)
        runtime = NodeRuntime(self.disk, self.clock, SystemRng(), self.loop, self.pool)
        self.broker = Broker(config, runtime, self.registry, receives_telemetry=self.receives_telemetry)
        self.loop.run_until_complete(self.broker.start([Endpoint(LISTENER, "PLAINTEXT", "127.0.0.1", 9092)]))
        self._next_channel = 1

    def stop(self) -> None:
        self.loop.run_until_complete(self.broker.stop())
        self.pool.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def connect(self) -> Connection:
        self._next_channel += 1
        return Connection(self, MemoryChannel(self._next_channel))

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run the loop until `condition` holds."""

        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(asyncio.wait_for(wait(), ANSWER_TIMEOUT_S))

    def turn(self) -> None:
        """Run everything that is due."""
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.run_until_complete(asyncio.sleep(0))

    def counter(self, name: str, **labels: str) -> float:
        """The value of a counter."""
        return self.registry.counter(name, "", labels).value
