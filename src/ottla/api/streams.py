"""`Streams`: reads a topic in several threads, each partition in one of them.

    with Streams("localhost:9092", {"group.id": "readers"}, topics="views", count=4) as streams:
        streams.run(handle)

Each stream is a `Consumer` and a group member, so the group's assignment gives every partition to one stream, in this
and other processes. Records count as processed per stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic

from ottla.api.consumer import Consumer
from ottla.api.messages import Record
from ottla.api.records import RK, RV, Deserializer
from ottla.api.settings import Config
from ottla.api.topic_filter import Topics
from ottla.common.errors import ErrorCode, KafkaError

WAIT_S = 0.5
"""Short, so that Ctrl-C is handled."""


class Streams(Generic[RK, RV]):
    """See the module. A context manager that stops all streams."""

    def __init__(
        self,
        bootstrap_servers: str,
        config: Config,
        *,
        topics: Topics,
        count: int,
        key_deserializer: Deserializer[RK] | None = None,
        value_deserializer: Deserializer[RV] | None = None,
    ) -> None:
        """Raises KafkaError INVALID_CONFIG, INVALID_GROUP_ID without `group.id`."""
        if count < 1:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"count must be at least 1 stream, not {count}")
        chosen = topics if isinstance(topics, str) or not isinstance(topics, Iterator) else list(topics)
        self._streams: list[Consumer[RK, RV]] = []
        try:
            for _ in range(count):
                stream = Consumer(
                    bootstrap_servers,
                    config,
                    key_deserializer=key_deserializer,
                    value_deserializer=value_deserializer,
                )
                self._streams.append(stream)
                stream.subscribe(chosen)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Streams[RK, RV]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Consumer[RK, RV]]:
        """The streams, each for one thread."""
        return iter(self._streams)

    def __len__(self) -> int:
        return len(self._streams)

    def run(self, handle: Callable[[Record[RK, RV]], object]) -> None:
        """Call `handle` for every record, in a thread per stream, until `stop`; then leave the group.

        The first exception of `handle` or a stream stops all streams and is raised here; its record is not committed.
        """
        failures: list[BaseException] = []

        def work(stream: Consumer[RK, RV]) -> None:
            try:
                with stream:
                    for record in stream:
                        handle(record)
            except BaseException as error:
                failures.append(error)
                self.stop()

        threads = [threading.Thread(target=work, args=(each,), name="ottla-stream") for each in self._streams]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(WAIT_S)
        finally:
            self.stop()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]

    def stop(self) -> None:
        """End the iterations of all streams; from any thread."""
        for stream in self._streams:
            stream.stop()

    def close(self) -> None:
        """Commit processed records and leave the group. Threads of the caller must have ended."""
        for stream in self._streams:
            stream.stop()
        for stream in self._streams:
            stream.close()
