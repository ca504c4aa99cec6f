"""Produce, consume, and both at once, as fast as librdkafka goes: broker CPU for each GB and million records.

The throughput is mostly the client's, or the disk's; the CPU of the broker is what counts. `produce` and `consume` use
one topic of 16 partitions (OpenMessaging Benchmark: 1-topic-16-partition-100b and 1-topic-16-partitions-1kb, each half
alone); `stream` is one producer and one consumer at once, the shapes of 1, 16 and 100 partitions with 1 KiB at the
maximum rate. Client settings beyond librdkafka's defaults: linger 5 ms, and queues large enough to keep it busy.
NATS has no compression and one kind of acknowledgement, so it is in one column of that matrix only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product

from harness.cells import Axis, Cell, Figure, Profile, cpu_figures, memory_figures, profiles
from harness.load import create_topic, load
from harness.peers import Server

Run = Callable[[Server, Profile], Sequence[Figure]]
SIZES = (100, 1024, 10_240)
CODECS = ("none", "lz4", "zstd")
ACKS = ("1", "all")
TOPIC = "load"
PARTITIONS = 16
SHAPES = {100: "1-topic-16-partition-100b", 1024: "1-topic-16-partitions-1kb"}
PRODUCER = {
    "producer.linger.ms": 5,
    "producer.queue.buffering.max.messages": 500_000,
    "producer.queue.buffering.max.kbytes": 1_048_576,
}
CONSUMER = {"consumer.queued.min.messages": 1_000_000}
PRELOADED_BYTES_PER_SECOND = 100_000_000
"""Bytes per second of the window: enough that the consumer reaches the end of the topic only a few times."""

SUBSET = {"produce/100/none/acks=1", "produce/1024/none/acks=all", "produce/1024/lz4/acks=1"}
SUBSET |= {"consume/100/none", "consume/1024/none"}
QUICK = {"produce/100/none/acks=1", "produce/1024/none/acks=1", "consume/1024/none"}


def produce(size: int, codec: str, acks: str, server: Server, profile: Profile, **client: object) -> Sequence[Figure]:
    """Measure produce; `client` contains further options of the load, and properties of its clients."""
    create_topic(server, TOPIC, PARTITIONS)
    properties = {**PRODUCER, "producer.compression.type": codec, "producer.acks": acks}
    window = {"warm_up_s": profile.warm_up_s, "seconds": profile.seconds}
    loaded = load("produce", server, properties, topic=TOPIC, partitions=PARTITIONS, size=size, **window, **client)
    records = loaded.counts["produced"]
    return [*cpu_figures(loaded.used, payload_bytes=records * size, records=records), *memory_figures(server)]


def consume(size: int, codec: str, server: Server, profile: Profile, **client: object) -> Sequence[Figure]:
    """Measure consume from the page cache: the records were just written. `client` as for `produce`."""
    create_topic(server, TOPIC, PARTITIONS)
    records = int(PRELOADED_BYTES_PER_SECOND * profile.seconds) // size
    properties = {**PRODUCER, **CONSUMER, "producer.compression.type": codec}
    shape = {"topic": TOPIC, "partitions": PARTITIONS, "size": size, **client}
    load("produce", server, properties, records=records, **shape)
    loaded = load("consume", server, properties, warm_up_s=profile.warm_up_s, seconds=profile.seconds, **shape)
    records = loaded.counts["consumed"]
    return [*cpu_figures(loaded.used, payload_bytes=records * size, records=records), *memory_figures(server)]


def stream(partitions: int, server: Server, profile: Profile) -> Sequence[Figure]:
    """Measure one producer and one consumer; a GB is one that was produced and, as far as the consumer keeps up,
    consumed.
    """
    create_topic(server, TOPIC, partitions)
    properties = {**PRODUCER, **CONSUMER, "producer.acks": "all"}
    window = {"warm_up_s": profile.warm_up_s, "seconds": profile.seconds}
    loaded = load("stream", server, properties, topic=TOPIC, partitions=partitions, size=1024, **window)
    records = loaded.counts["produced"]
    return [
        *cpu_figures(loaded.used, payload_bytes=records * 1024, records=records),
        Figure("consumed of produced", loaded.counts["consumed"] / records, "", better="more"),
        *memory_figures(server),
    ]


def matrix() -> Iterator[tuple[str, Run, bool, Axis | None, int]]:
    """Yields name, function, whether NATS supports it, position in a plot, and size."""
    for size, codec in product(SIZES, CODECS):
        axis = Axis("consume", codec, size, "bytes of a record")
        # At 100 bytes NATS' Python client needs ten minutes to write the records.
        yield f"consume/{size}/{codec}", partial(consume, size, codec), codec == "none" and size > 100, axis, size
        for acks in ACKS:
            axis = Axis("produce", codec, size, "bytes of a record")
            alike = (codec, acks) == ("none", "1")
            name = f"produce/{size}/{codec}/acks={acks}"
            yield name, partial(produce, size, codec, acks), alike, axis if acks == "1" else None, size


def cells() -> list[Cell]:
    found = []
    for name, run, nats_too, axis, size in matrix():
        peers = ("ottla", "kafka", "nats") if nats_too else ("ottla", "kafka")
        shape = SHAPES.get(size, "")
        found.append(Cell(name, run, profiles(name, SUBSET, QUICK), peers, axis=axis, shape=shape))
    for partitions in (1, 16, 100):
        name = f"stream/{partitions}"
        shape = f"1-topic-{partitions}-partition{'s' if partitions > 1 else ''}-1kb"
        axis = Axis("stream", "1 KiB", partitions, "partitions")
        found.append(Cell(name, partial(stream, partitions), axis=axis, shape=shape))
    return found
