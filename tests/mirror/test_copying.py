"""Copying of fetched data: unchanged batches, rebuilt batches, omitted records, and runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.wire.model import AbortedTransaction, FetchResult
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.key_hash import hash_partition
from ottla.mirror import copying
from ottla.mirror.copying import PartitionCopy, Step
from ottla.mirror.progress import Run
from ottla.mirror.routes import Route
from ottla.record.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchView, iter_batches
from ottla.record.builder import RecordData, build_batch, build_batch_with_gaps
from ottla.record.control import end_transaction_marker
from ottla.record.stamp import is_sendable, stamped

ROUTE = Route("A", "t", 1, "t")
TIME = 1_700_000_000_000


def records(*values: bytes, key: bytes | None = b"k") -> list[RecordData]:
    return [RecordData(TIME + number, key, value, [("h", None)]) for number, value in enumerate(values)]


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    made = end_transaction_marker(
        commit=commit,
        timestamp_ms=TIME,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        base_offset=offset,
    )
    return bytes(made)


def fetched(*batches: bytes | bytearray, aborted: tuple[tuple[int, int], ...] = ()) -> FetchResult:
    content = b"".join(bytes(batch) for batch in batches)
    end = max((batch.next_offset for batch in iter_batches(content)), default=0)
    return FetchResult(content, end, 0, end, tuple(AbortedTransaction(*each) for each in aborted))


def of_producer(offset: int, producer_id: int, *values: bytes) -> bytearray:
    return build_batch(
        records(*values),
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def in_step(position: int = 0) -> PartitionCopy:
    return PartitionCopy(ROUTE, position, 4, in_step=True)


def values(step: Step) -> list[tuple[int, bytes | None]]:
    return [(write.partition, record.value) for write in step.writes for record in write.batch.records()]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_goes_as_it_is_but_for_its_producer_and_crc(codec: str) -> None:
    source = build_batch(
        records(b"a" * 300, b"b" * 300),
        base_offset=70,
        compression=codec,
        leader_epoch=3,
        producer_id=5,
        producer_epoch=1,
    )
    step = in_step(70).take(fetched(source))
    (write,) = step.writes
    sent = BatchView(stamped(write.batch, 900, 7, 40))
    assert bytes(sent.buffer[HEADER_SIZE:]) == bytes(source[HEADER_SIZE:])
    assert (sent.producer_id, sent.producer_epoch, sent.base_sequence) == (900, 7, 40)
    assert (sent.base_offset, sent.partition_leader_epoch, sent.is_transactional) == (0, -1, True)
    assert sent.crc_matches()
    assert [r.timestamp for r in sent.records()] == [r.timestamp for r in BatchView(source).records()]
    assert (step.next_offset, write.partition) == (72, 1)


def test_aborted_transactions_and_control_batches_are_left_out() -> None:
    step = in_step().take(
        fetched(
            of_producer(0, 1, b"aborted"),
            of_producer(1, 2, b"kept"),
            marker(2, 1, commit=False),
            of_producer(3, 1, b"later"),
            marker(4, 2, commit=True),
            marker(5, 1, commit=True),
            aborted=((1, 0),),
        )
    )
    assert values(step) == [(1, b"kept"), (1, b"later")]
    assert step.next_offset == 6


@pytest.mark.parametrize(
    ("source", "position", "offsets"),
    [
        (build_batch_with_gaps([(0, records(b"a")[0]), (3, records(b"d")[0])], 10), 10, [10, 13]),
        (build_batch(records(b"a", b"d"), base_offset=10, timestamp_type=LOG_APPEND_TIME), 10, [10, 11]),
        (build_batch(records(b"x", b"a", b"d"), base_offset=10), 11, [11, 12]),
    ],
    ids=["with gaps", "time of append", "from within"],
)
def test_batches_that_clients_may_not_send_are_rebuilt(source: bytearray, position: int, offsets: list[int]) -> None:
    step = in_step(position).take(fetched(source))
    (write,) = step.writes
    assert is_sendable(write.batch)
    before = [record for record in BatchView(source).records() if record.offset in offsets]
    assert [(r.timestamp, r.key, r.value, r.headers) for r in write.batch.records()] == [
        (r.timestamp, r.key, r.value, r.headers) for r in before
    ]
    found = {run.source_first + n: run.target_first + n for run in step.runs([500]) for n in range(run.records)}
    assert found == {offset: 500 + n for n, offset in enumerate(offsets)}


def test_a_batch_that_was_compacted_away_moves_the_position_only() -> None:
    empty = bytearray(build_batch(records(b"a"), base_offset=4)[:HEADER_SIZE])
    empty[8:12] = (HEADER_SIZE - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    empty[17:21] = BatchView(empty).compute_crc().to_bytes(4, "big")
    copy = in_step(4)
    step = copy.take(fetched(empty))
    assert (step.writes, step.next_offset) == ((), 5)
    copy.committed(step)
    assert copy.position == 5


def test_damage_is_not_sealed_by_a_new_checksum() -> None:
    source = build_batch(records(b"a"), base_offset=3)
    source[-1] ^= 1
    with pytest.raises(KafkaError, match=r"the batch of t-1 at or after offset 3 .* checksum does not match") as caught:
        in_step(3).take(fetched(source))
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_records_are_partitioned_by_key_if_counts_differ() -> None:
    source = build_batch([RecordData(TIME, key, b"v") for key in (b"21", None, b"abc", None)], base_offset=6)
    step = PartitionCopy(ROUTE, 6, 3, in_step=False).take(fetched(source))
    placed = {record.key: write.partition for write in step.writes for record in write.batch.records() if record.key}
    assert placed == {key: hash_partition(key, 3) for key in (b"21", b"abc")}
    in_turn = {write.partition for write in step.writes for record in write.batch.records() if record.key is None}
    assert in_turn == {7 % 3, 9 % 3}
    assert sum(write.batch.records_count for write in step.writes) == 4


def test_built_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "CHUNK_BYTES", 1000)
    source = build_batch(records(*[b"v" * 400] * 5, b"w" * 5000), base_offset=0)
    step = PartitionCopy(ROUTE, 0, 1, in_step=False).take(fetched(source))
    assert [write.batch.records_count for write in step.writes] == [2, 2, 1, 1]


def test_contiguous_runs_are_merged() -> None:
    copy = in_step()
    step = copy.take(
        fetched(build_batch(records(b"a", b"b")), build_batch(records(b"c"), base_offset=2), of_producer(5, 1, b"d"))
    )
    assert step.runs([10, 12, 13]) == (Run(1, 0, 3, 10, 3), Run(1, 5, 6, 13, 1))
    assert step.runs([10, 20, 21]) == (Run(1, 0, 2, 10, 2), Run(1, 2, 3, 20, 1), Run(1, 5, 6, 21, 1))


def test_a_step_is_committed_in_its_turn() -> None:
    copy = in_step()
    step = copy.take(fetched(build_batch(records(b"a"))))
    copy.committed(step)
    with pytest.raises(InvariantError, match="a step from offset 0 is not at the position 1"):
        copy.committed(step)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int, int]], list[tuple[bytes | None, bytes]]]:
    """A log of overlapping transactions, aborted ones with their marker offsets, and the visible records."""
    content, offset, number = bytearray(), 0, 0
    opened: dict[int, tuple[int, list[tuple[int, tuple[bytes | None, bytes]]]]] = {}
    aborted, visible = [], []
    for _ in range(draw(st.integers(1, 12))):
        producer = draw(st.integers(1, 3))
        if producer in opened and draw(st.booleans()):
            first, written = opened.pop(producer)
            commit = draw(st.booleans())
            content += marker(offset, producer, commit=commit)
            visible += written if commit else []
            aborted += [] if commit else [(producer, first, offset)]
            offset += 1
            continue
        key = draw(st.sampled_from([None, b"a", b"b", b"c"]))
        made = [RecordData(TIME, key, b"%d" % (number + n)) for n in range(draw(st.integers(1, 3)))]
        number += len(made)
        codec = draw(st.sampled_from(["none", "lz4"]))
        content += build_batch(
            made, base_offset=offset, compression=codec, producer_id=producer, producer_epoch=0, is_transactional=True
        )
        opened.setdefault(producer, (offset, []))[1].extend(
            (offset + n, (each.key, each.value or b"")) for n, each in enumerate(made)
        )
        offset += len(made)
    for producer, (first, _) in opened.items():
        content += marker(offset, producer, commit=False)
        aborted.append((producer, first, offset))
        offset += 1
    return bytes(content), aborted, [row for _, row in sorted(visible)]


@pytest.mark.promise("M1")
@given(log=logs(), cuts=st.lists(st.integers(1, 4), max_size=12), dense=st.booleans(), lost=st.sets(st.integers(0, 11)))
def test_committed_records_equal_visible_records(log, cuts, dense, lost) -> None:
    """For any fetch, also if the process that built a step was killed before its commit."""
    content, aborted, visible = log
    batches = list(iter_batches(content))
    copy, target, number = PartitionCopy(ROUTE, 0, 3, in_step=dense), [], 0
    while copy.position < batches[-1].next_offset:
        rest = [batch for batch in batches if batch.next_offset > copy.position]
        some = rest[: cuts[number]] if number < len(cuts) else rest
        listed = tuple((producer, first) for producer, first, last in aborted if last >= copy.position)
        result = fetched(*(batch.to_bytes() for batch in some), aborted=listed)
        step = copy.take(result)
        if number in lost:
            copy = PartitionCopy(ROUTE, copy.position, 3, in_step=dense)
        else:
            target += [(r.key, r.value, w.partition) for w in step.writes for r in w.batch.records()]
            copy.committed(step)
        number += 1
    assert sorted((value for _, value, _ in target), key=lambda v: int(v or 0)) == [value for _, value in visible]
    for partition in {partition for _, _, partition in target}:
        for wanted_key in (None, b"a", b"b", b"c"):
            placed = [v for k, v, p in target if p == partition and k == wanted_key]
            assert placed == sorted(placed, key=lambda v: int(v or 0))
