"""Fetch of a consumer: up to the high watermark or the last stable offset.

The first batch is returned even if it exceeds all limits, so that no consumer gets stuck (KIP-74). Stored records are
sent as file regions; nothing is copied here. From version 11 on a consumer may read from a follower too, and
may be redirected to one in its rack (KIP-392). A partition without new records becomes idle in its session.
"""

from __future__ import annotations

from ottla.protocol.fetch import FetchPartitionResult
from ottla.protocol.primitives import Topic
from ottla.replica.fetch_session import SessionPartition
from ottla.replica.partition import READ_COMMITTED, Partition
from ottla.replica.purgatory import Watch
from ottla.server.handlers.data.fetching import Fetch, ReadRound, Rows
from ottla.storage.files.off_loop import Known, WouldBlock
from ottla.storage.log.aborted_transactions import ListedTransactions
from ottla.storage.segment.results import ReadResult

FIRST_VERSION_WITH_FOLLOWERS = 11


class ConsumerFetch(Fetch):
    """A fetch of a consumer."""

    __slots__ = ()

    def read(self, known: Known | None = None) -> ReadRound:
        """See `Fetch`."""
        done = ReadRound()
        rows = done.rows
        incremental = self._session.incremental
        isolation_level = self._message.isolation_level
        none_aborted: ListedTransactions | None = () if isolation_level == READ_COMMITTED else None
        left = min(self._message.max_bytes, self._context.fetch_max_bytes)
        find = self.finder()
        old = self._request.api_version < FIRST_VERSION_WITH_FOLLOWERS
        check = Partition.check_leader if old else Partition.check_readable
        rack = self._message.rack_id
        new_tuple = tuple.__new__
        for asked in self._session.partitions:
            try:
                partition = find(asked.topic, asked.index)
                check(partition, asked.current_leader_epoch)
                offsets = partition.offsets
                high_watermark = offsets.high_watermark
                log_start_offset = offsets.log_start_offset
                diverging = None
                region = None
                preferred = -1
                aborted = none_aborted
                if offsets.log_end_offset == high_watermark and (
                    none_aborted is None or partition.last_stable_offset == high_watermark
                ):
                    asked.seen_bytes = partition.appended_bytes
                if asked.last_fetched_epoch >= 0:
                    diverging = partition.diverging_epoch(asked.fetch_offset, asked.last_fetched_epoch)
                if diverging is not None or (rack and (preferred := self._preferred(partition, asked)) >= 0):
                    done.urgent = True
                elif asked.fetch_offset != high_watermark:
                    limit = max(0, asked.max_bytes if asked.max_bytes < left else left)
                    at_least_one = done.byte_count == 0
                    found = partition.read(asked.fetch_offset, limit, at_least_one, isolation_level, known)
                    done.byte_count += found.length
                    region = found.records
                    if region is not None:
                        left -= region.length
                        if none_aborted is not None and partition.log.segments.with_aborted:
                            aborted = self._aborted(partition, asked.fetch_offset, found, known)
                if (
                    region is None
                    and diverging is None
                    and preferred < 0
                    and incremental
                    and not asked.moved(high_watermark, log_start_offset)
                ):
                    if asked.fetch_offset == high_watermark:
                        asked.rest(partition.fetch_watch)
                    continue
                stable = partition.log.last_stable_offset(high_watermark)
                # Equivalent to a call of the class, which takes three times as long.
                row = (
                    asked.index, 0, high_watermark, stable, log_start_offset, region, aborted, preferred, diverging,
                    None, None,
                )  # fmt: skip
                rows.append((asked, new_tuple(FetchPartitionResult, row)))
            except WouldBlock as needed:
                done.needed.append(needed)
                if done.full:
                    break
            except Exception as error:
                done.urgent = True
                rows.append((asked, self.failed(asked, error)))
        return done

    @staticmethod
    def _aborted(partition: Partition, offset: int, found: ReadResult, known: Known | None) -> ListedTransactions:
        """Aborted transactions with records in `found`; releases the region if they can't be determined."""
        try:
            return partition.aborted_transactions(offset, found, known)
        except BaseException:
            if found.records is not None:
                found.records.release()
            raise

    def _preferred(self, partition: Partition, asked: SessionPartition) -> int:
        """The preferred read replica of this consumer; -1 for this broker."""
        return self._context.replicas.cluster.preferred_read_replica(
            partition, self._message.rack_id, asked.fetch_offset
        )

    def watch(self, partition: Partition) -> Watch:
        """Consumers read replicated records."""
        return partition.fetch_watch

    def count(self, rows: Rows) -> None:
        """Count once per run of rows of one topic."""
        topic: Topic = ""
        count = size = failed = 0
        for asked, result in rows:
            if asked.topic != topic:
                if count:
                    self._count_topic(topic, count, size, failed)
                topic = asked.topic
                count = size = failed = 0
            count += 1
            records = result.records
            if records is not None:
                size += len(records) if isinstance(records, bytes) else records.length
            if result.error_code != 0:
                failed += 1
        if count:
            self._count_topic(topic, count, size, failed)

    def _count_topic(self, topic: Topic, count: int, size: int, failed: int) -> None:
        context = self._context
        known = context.metadata.image.find(topic)
        totals = [context.statistics.all_topics]
        if known is not None:
            totals.append(context.statistics.topic(known.name))
        for statistics in totals:
            statistics.fetches.value += count
            statistics.bytes_out.value += size
            statistics.failed_fetches.value += failed
