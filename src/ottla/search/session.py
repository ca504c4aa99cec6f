"""A search of one user: connection, plan, run and report. The interface for commands and the console.

The package docstring has an example.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import OperatorError
from ottla.search.decoders import decoder_for
from ottla.search.engine import Budget, Search
from ottla.search.parser import parse_query
from ottla.search.plan import Plan, fix_ranges, read_token
from ottla.search.pruning import pruned
from ottla.search.report import Report
from ottla.search.scan import Hit
from ottla.search.scopes import merge_scopes
from ottla.search.source import ClusterTopic
from ottla.search.subject import Decoders, open_decoders
from ottla.search.syntax import Query, Scopes
from ottla.search.windows import Lookahead

if TYPE_CHECKING:
    from ottla.schemas.settings import SchemaSettings
    from ottla.search.masks import RecordMask
    from ottla.search.workers import WorkerPool

__all__ = ["Budget", "Decoders", "Hit", "Report", "Scopes", "SearchRequest", "SearchSession"]

CLIENT_ID = "ottla-search"
"""Client id of its own, so that client quotas can limit searches."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search to run. `scopes` are those that are not in the text of the query; `budget.matches` is the limit."""

    topic: str
    query: str = ""
    scopes: Scopes = field(default_factory=Scopes)
    newest_first: bool = False
    decoders: Decoders = field(default_factory=Decoders)
    budget: Budget = field(default_factory=Budget)
    schemas: SchemaSettings | None = None
    """Registry and schema files of the decoders; a token does not contain them."""
    mask: RecordMask | None = None
    """Parts of the records that are replaced before the filter; a token does not contain it."""
    plan: Plan | None = None
    """The plan of a resume token; it replaces all but the budget."""

    @classmethod
    def resumed(cls, token: str, budget: Budget | None = None) -> SearchRequest:
        """The rest of an earlier search. Raises OperatorError for a token of another version."""
        plan = read_token(token)
        return cls(plan.topic, plan.query, budget=budget or Budget(), plan=plan)


class SearchSession:
    """One search with connections of its own. A context manager that closes them."""

    def __init__(
        self,
        bootstrap_servers: str,
        request: SearchRequest,
        *,
        security: ClientSecurity = PLAINTEXT,
        client_id: str = CLIENT_ID,
        processes: int = 1,
    ) -> None:
        """Fixes the ranges of offsets. `processes`: maximum number of worker processes; 1 scans in this one.

        Raises QueryError, ScopeConflict, KafkaError, OperatorError.
        """
        parsed = parse_query(request.query, time.time_ns() // 1_000_000)
        self._pool: WorkerPool | None = None
        self._cluster = Cluster(bootstrap_servers, client_id=client_id, security=security)
        try:
            self.plan, source = self._prepare(request, parsed)
            limit = request.budget.matches
            if limit is None or request.plan is None:
                limit = merge_scopes(parsed.scopes, Scopes(limit=limit)).limit
            budget = replace(request.budget, matches=limit)
            decoders = open_decoders(self.plan.decoders, request.schemas, request.mask)
            lookahead = None
            if processes > 1:
                from ottla.search.workers import WorkerPool, WorkerSetup

                setup = WorkerSetup(
                    bootstrap_servers,
                    security,
                    client_id,
                    self.plan.topic,
                    self.plan.topic_id,
                    self.plan.isolation,
                    parsed.filter,
                    self.plan.decoders,
                    request.schemas,
                    request.mask,
                )
                self._pool = WorkerPool(setup, processes)
                lookahead = Lookahead(self._pool, time.process_time)
            self.search = Search(
                source, self.plan, parsed.filter, budget, time.monotonic, decoders=decoders, lookahead=lookahead
            )
        except BaseException:
            self._cluster.close()
            raise

    def __enter__(self) -> SearchSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end the worker processes."""
        if self._pool is not None:
            self._pool.close()
        self._cluster.close()

    def matches(self, on_progress: Callable[[Report], None] = lambda report: None) -> Iterator[Hit]:
        """Yield the matches in order. `on_progress` is called after each read. Raises KafkaError, BrokerUnreachable."""
        self.search.on_progress = on_progress
        return self.search.run()

    def cancel(self) -> None:
        """Stop before the next read; may be called from another thread."""
        self.search.cancel()

    def report(self) -> Report:
        """The report after the last match, or after an error."""
        return self.search.report(self.search.reason)

    def _prepare(self, request: SearchRequest, parsed: Query) -> tuple[Plan, ClusterTopic]:
        if request.plan is not None:
            source = ClusterTopic(self._cluster, request.plan.topic, request.plan.isolation)
            if request.plan.topic_id != source.topic_id:
                raise OperatorError(
                    f"topic {request.plan.topic!r} was deleted and created again since the token was printed"
                )
            return request.plan, source
        scopes = merge_scopes(parsed.scopes, request.scopes)
        topic, isolation = request.topic, scopes.isolation or "uncommitted"
        source = ClusterTopic(self._cluster, topic, isolation)
        decoders = Decoders(*(decoder_for(topic, name) for name in request.decoders))
        ranges = pruned(source, fix_ranges(source, scopes), parsed.filter)
        plan = Plan(topic, request.query, ranges, request.newest_first, isolation, decoders, source.topic_id)
        return plan, source
