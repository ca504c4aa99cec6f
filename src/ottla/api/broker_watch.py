"""Broker discovery of a producer through ZooKeeper (`zk.connect`), with four kinds of watches for changes.

They report brokers that start or stop, new topics, and changed partitions or leaders of topics that were sent to. The
change itself is not read: the producer refreshes all metadata from the brokers, once for several changes in a row.

Left out: the replacement of all brokers at once, since the library cannot be given new addresses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from ottla.client.librdkafka.worker import Worker
from ottla.client.zookeeper.zookeeper_access import ZooKeeperAccess
from ottla.client.zookeeper.zookeeper_brokers import BrokerSearch
from ottla.client.zookeeper.zookeeper_session import session_below
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.session import ZooKeeperError

logger = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 6000
MAX_TOPICS = 10_000
"""Number of watched topics; for others the library refreshes metadata within `metadata.max.age.ms`."""


class BrokerWatch:
    """See the module. Created and closed by the producer; everything else runs in its own threads."""

    def __init__(self, servers: str, protocol: str, access: ZooKeeperAccess) -> None:
        """`protocol` is that of the brokers' listeners. Raises OperatorError for invalid servers."""
        self._protocol = protocol
        self._thread = ThreadPoolExecutor(1, "ottla-zookeeper")
        self._worker = Worker(self._post, "ottla-zookeeper-calls")
        self._topics: set[str] = set()
        self._refresh: Callable[[], object] | None = None
        self._refreshing = self._again = False
        self._found: Future[list[str]] = Future()
        try:
            self._session = session_below(
                servers, SESSION_TIMEOUT_MS, post=self._post, pool=self._worker, access=access
            )
        except BaseException:
            self._end()
            raise
        self._post(self._session.start, self)

    def addresses(self, timeout_s: float) -> str:
        """The brokers as bootstrap servers. Raises KafkaError NETWORK_EXCEPTION, BROKER_NOT_AVAILABLE."""
        try:
            found = self._found.result(timeout_s)
        except TimeoutError:
            trouble = f" ({self._session.trouble})" if self._session.trouble else ""
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION, f"zk.connect: no response from ZooKeeper within {timeout_s:g} s{trouble}"
            ) from None
        if not found:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"zk.connect: ZooKeeper has no broker below {paths.BROKER_IDS} with a {self._protocol} listener",
            )
        return ",".join(found)

    def on_change(self, refresh: Callable[[], object]) -> None:
        """Set the callback for changes; it is called in a thread."""
        self._refresh = refresh

    def watch(self, topic: str) -> None:
        """Watch a topic that records are sent to."""
        if topic not in self._topics and len(self._topics) < MAX_TOPICS:
            self._topics.add(topic)
            self._post(self._watch_topic, topic)

    def close(self) -> None:
        """End the session; no more callbacks."""
        self._refresh = None
        closed: Future[None] = Future()
        self._post(self._session.close, partial(closed.set_result, None))
        closed.result()
        self._end()

    def _end(self) -> None:
        self._worker.close()
        self._thread.shutdown()

    def _post(self, callback: Callable[..., object], *args: Any) -> None:
        try:
            self._thread.submit(_logged, callback, *args)
        except RuntimeError:
            logger.debug("event ignored after close")

    # -- the session, in its thread

    def on_connected(self, _session: int) -> None:
        """See `SessionListener`. Changes during a disconnection are not reported."""
        if not self._found.done():
            BrokerSearch(self._session, self._found, self._protocol).begin()
        self._watch_children(paths.BROKER_IDS)
        self._watch_children(paths.BROKER_TOPICS)
        for topic in self._topics.copy():
            self._watch_topic(topic)

    def on_disconnected(self) -> None:
        """See `SessionListener`."""

    def on_expired(self) -> None:
        """See `SessionListener`."""

    def _watch_children(self, path: str) -> None:
        self._session.children(path, self._is_watched, partial(self._watch_children, path))

    def _watch_topic(self, topic: str) -> None:
        try:
            path = paths.topic(topic)
        except KafkaError:
            return  # the broker will report it
        self._session.get(path, self._is_watched, partial(self._watch_topic, topic))

    def _is_watched(self, _answer: object, error: ZooKeeperError | None) -> None:
        """Refresh metadata only now: later changes are reported. After a lost connection, set the watch again."""
        if error is None:
            self._changed()

    def _changed(self) -> None:
        refresh = self._refresh
        if refresh is None:
            return
        self._again = self._refreshing
        if not self._refreshing:
            self._refreshing = True
            self._worker.submit(refresh, self._refreshed)

    def _refreshed(self, _result: object, error: BaseException | None) -> None:
        self._refreshing = False
        if error is not None:
            logger.warning("metadata refresh after a ZooKeeper change failed: %s", error)
        if self._again:
            self._changed()


def _logged(callback: Callable[..., object], *args: Any) -> None:
    try:
        callback(*args)
    except Exception:
        logger.exception("a watch of the producer failed")
