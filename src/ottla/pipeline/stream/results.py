"""What a stream needs of the place for its results: the rows of a batch, each once, however often a batch is run."""

from __future__ import annotations

from typing import Any, Protocol


class Results(Protocol):
    """A table or a topic. Batches come in order, one that was not ended by Spark comes again after a restart."""

    @property
    def location(self) -> str:
        """What a person calls the place."""

    @property
    def directory(self) -> str:
        """Where the rows of a batch are written, or their URL."""

    def require_fit(self, planned: int, ended: int) -> None:
        """Raise OperatorError unless the place holds what a checkpoint with these newest batches says; before Spark
        starts."""

    def open(self, frame: Any) -> None:
        """Raise OperatorError unless the place can hold the columns of the query's result."""

    def holds(self, batch: int) -> bool:
        """Whether the results of a batch are there already, as a whole."""

    def prepare(self, frame: Any, batch: int) -> None:
        """Run the DataFrame of a batch, all of it once, and make its rows durable; nobody sees them."""

    def commit(self, spark: Any, batch: int) -> int:
        """Make visible what was prepared; returns the number of the batch's rows."""

    def discard(self) -> None:
        """Take back what was prepared and not committed, as far as that can be."""
