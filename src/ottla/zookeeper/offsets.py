"""Committed offsets of groups in ZooKeeper: OffsetCommit 0 and OffsetFetch 0, as in Kafka 0.8.1 to 3.9.

One znode for each partition; the last writer wins, since those requests contain no members. They run asynchronously:
all of them together have at most `MAX_CALLS` calls in flight, and take turns, so that a large request does not delay
small ones. Without a connection they fail at once; if the response to a write is lost, its outcome is unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.consumers import decode_offset, encode_offset
from ottla.protocol.znodes.operations import Create, Operation, SetData, Znode
from ottla.protocol.znodes.session import Code, ZooKeeperError, ZooKeeperSession

MAX_CALLS = 64
"""Calls in flight, of all requests together."""
ATTEMPTS = 3
"""Attempts of a write that finds the znode missing, and then existing."""

T = TypeVar("T")
Steps = Generator[Operation | str, Any, T]
"""Yields a path to read and receives a `Znode` or None; yields an operation to write and receives its error `Code` or
None. ZooKeeperError is thrown into it if the outcome is unknown.
"""


class ConsumerOffsets:
    """See the module. All methods run on the loop; each callback is called once, never before the method returns."""

    __slots__ = ("_jobs", "_session", "_under_way")

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._jobs: deque[_Job[Any]] = deque()
        self._under_way = 0

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Write the committed offsets of a group; the callback receives the result of each partition."""

        def write(key: TopicPartition) -> Steps[ErrorCode]:
            try:
                refused = yield from _write(paths.consumer_offset(group, *key), encode_offset(offsets[key]))
            except KafkaError as error:
                return error.code
            except ZooKeeperError:
                return ErrorCode.UNKNOWN_SERVER_ERROR
            return ErrorCode.NONE if refused is None else ErrorCode.UNKNOWN_SERVER_ERROR

        self._begin(write, offsets, done)

    def fetch(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        done: Callable[[dict[TopicPartition, int | ErrorCode]], None],
    ) -> None:
        """Read the committed offsets of a group; the callback receives the offset of each partition, or its error
        (UNKNOWN_TOPIC_OR_PARTITION if none is committed).
        """

        def read(key: TopicPartition) -> Steps[int | ErrorCode]:
            try:
                path = paths.consumer_offset(group, *key)
                node: Znode | None = yield path
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if node is None else decode_offset(path, node.data)
            except KafkaError as error:
                return error.code
            except (ZooKeeperError, ProtocolError):
                return ErrorCode.UNKNOWN_SERVER_ERROR

        self._begin(read, dict.fromkeys(partitions), done)

    def _begin(
        self,
        steps: Callable[[TopicPartition], Steps[T]],
        keys: Mapping[TopicPartition, object],
        done: Callable[[dict[TopicPartition, T]], None],
    ) -> None:
        if not keys:
            done({})
            return
        self._jobs.append(_Job(steps, iter(list(keys)), len(keys), done))
        self._proceed()

    def _proceed(self) -> None:
        """Start as many partitions as may be in flight, one of each request in turn."""
        while self._jobs and self._under_way < MAX_CALLS:
            job = self._jobs.popleft()
            key = next(job.rest, None)
            if key is not None:
                self._jobs.append(job)
                self._under_way += 1
                self._step(job, key, job.steps(key), None)

    def _step(self, job: _Job[T], key: TopicPartition, steps: Steps[T], answer: object) -> None:
        try:
            request = steps.throw(answer) if isinstance(answer, ZooKeeperError) else steps.send(answer)
        except StopIteration as ended:
            self._under_way -= 1
            job.found(key, ended.value)
        else:
            if isinstance(request, str):
                self._session.get(request, partial(self._read, job, key, steps))
            else:
                self._session.multi([request], partial(self._written, job, key, steps))

    def _read(
        self, job: _Job[T], key: TopicPartition, steps: Steps[T], node: Znode | None, error: ZooKeeperError | None
    ) -> None:
        self._step(job, key, steps, node if error is None else error)
        self._proceed()

    def _written(
        self, job: _Job[T], key: TopicPartition, steps: Steps[T], _paths: list[str] | None, error: ZooKeeperError | None
    ) -> None:
        known = error is None or error.code in (Code.NO_NODE, Code.NODE_EXISTS)
        self._step(job, key, steps, (None if error is None else error.code) if known else error)
        self._proceed()


class _Job(Generic[T]):
    """One request: the partitions that have not started, and the results of the others."""

    __slots__ = ("_done", "_found", "_missing", "rest", "steps")

    def __init__(
        self,
        steps: Callable[[TopicPartition], Steps[T]],
        rest: Iterator[TopicPartition],
        count: int,
        done: Callable[[dict[TopicPartition, T]], None],
    ) -> None:
        self.steps = steps
        self.rest = rest
        self._missing = count
        self._found: dict[TopicPartition, T] = {}
        self._done = done

    def found(self, key: TopicPartition, result: T) -> None:
        """The result of one partition."""
        self._found[key] = result
        self._missing -= 1
        if not self._missing:
            self._done(self._found)


def _write(path: str, data: bytes) -> Steps[Code | None]:
    """Set a znode, or create it with its missing parents; tools may remove groups meanwhile."""
    refused: Code | None = None
    for _ in range(ATTEMPTS):
        refused = yield SetData(path, data)
        if refused is not Code.NO_NODE:
            return refused
        refused = yield Create(path, data)
        if refused is Code.NO_NODE:
            for parent in paths.parents(path):
                yield Create(parent, b"")
        elif refused is not Code.NODE_EXISTS:
            return refused
    return refused
