"""Process that scans windows of a search: `python -m ottla.search.worker DESCRIPTOR`, started by `search.workers`."""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection

from ottla.client.admin.cluster import Cluster
from ottla.common.errors import ErrorCode, KafkaError, OttlaError
from ottla.common.platform.reused_memory import ReusedMemory
from ottla.search.evaluation import compile_filter
from ottla.search.literals import required_clauses
from ottla.search.scan import Matcher
from ottla.search.source import ClusterTopic
from ottla.search.subject import Tally, open_decoders
from ottla.search.windows import Window, WindowResult, run_window
from ottla.search.workers import WorkerFailure, WorkerSetup


class WindowScanner:
    """The windows of one search."""

    def __init__(self, cluster: Cluster, setup: WorkerSetup) -> None:
        """Raises KafkaError, OperatorError."""
        self._source = ClusterTopic(cluster, setup.topic, setup.isolation)
        if self._source.topic_id != setup.topic_id:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID, f"topic {setup.topic!r} was deleted and created again during the search"
            )
        decoders = open_decoders(setup.decoders, setup.schemas, setup.mask)
        clauses = required_clauses(setup.condition, decoders)
        self._matcher = Matcher(compile_filter(setup.condition), clauses, decoders, Tally(), ReusedMemory())

    def scan(self, window: Window) -> WindowResult:
        """Raises KafkaError, OperatorError."""
        return run_window(self._source, window, self._matcher._replace(tally=Tally()))


def serve(connection: Connection) -> None:
    """Answer windows until the other end is closed."""
    setup: WorkerSetup = connection.recv()
    scanner: WindowScanner | None = None
    with Cluster(setup.bootstrap_servers, client_id=setup.client_id, security=setup.security) as cluster:
        while True:
            window: Window = connection.recv()
            result: WindowResult | WorkerFailure
            try:
                scanner = scanner or WindowScanner(cluster, setup)
                result = scanner.scan(window)
            except KafkaError as error:
                result = WorkerFailure(error.code, error.message)
            except OttlaError as error:
                result = WorkerFailure(None, str(error))
            connection.send(result)


def main() -> None:
    """Serve the descriptor of the command line."""
    try:
        serve(Connection(int(sys.argv[1])))
    except (EOFError, OSError):
        return


if __name__ == "__main__":
    main()
