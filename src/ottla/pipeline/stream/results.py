"""Interface of a stream's results: the rows of a batch are stored once, in any number of runs of the batch."""

from __future__ import annotations

from typing import Any, Protocol


class Results(Protocol):
    """A table or a topic. Batches come in order; one that Spark had not ended comes again after a restart."""

    @property
    def location(self) -> str:
        """The name of the table or topic for people."""

    @property
    def directory(self) -> str:
        """Directory or URL to which the rows of a batch are written."""

    def require_fit(self, planned: int, ended: int) -> None:
        """Raise OperatorError unless the stored results match a checkpoint with these newest batches; called before
        Spark starts."""

    def open(self, frame: Any) -> None:
        """Raise OperatorError unless the columns of the query's result can be stored."""

    def holds(self, batch: int) -> bool:
        """True if all results of a batch are stored already."""

    def prepare(self, frame: Any, batch: int) -> None:
        """Run the DataFrame of a batch once and as a whole, and make its rows durable but not yet visible."""

    def commit(self, spark: Any, batch: int) -> int:
        """Make the prepared rows visible; returns the number of the batch's rows."""

    def discard(self) -> None:
        """Discard prepared rows that were not committed, as far as possible."""
