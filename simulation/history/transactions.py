"""Transaction history of all producers: values of each transaction, whether its commit was requested, and its outcome.

Producers choose unique transaction names. A transaction without a commit request must never become visible, nor one
with a failed commit. If the response was lost, or its producer died waiting for it, both outcomes are valid, but all
its values must have the same.
"""

from __future__ import annotations

from enum import Enum

from simulation.history.findings import Findings


class Outcome(Enum):
    """Known outcome of a transaction."""

    OPEN = "open"
    """The commit was not requested: if the transaction ends, it is aborted."""
    ASKED = "asked"
    """Its producer requested the commit and does not know the outcome."""
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transactions:
    """Transactions of one run or round, over all topics."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._outcomes: dict[str, Outcome] = {}
        self._of: dict[str, str] = {}
        """The transaction of each value that was sent in one."""
        self._read: dict[str, str] = {}
        """The first read_committed reader of each transaction."""
        self.committed_count = self.aborted_count = 0

    def began(self, transaction: str) -> None:
        """A producer starts it, perhaps without ever writing to it."""
        self._outcomes.setdefault(transaction, Outcome.OPEN)

    def wrote(self, transaction: str, value: str) -> None:
        """Its producer is about to send a value in it."""
        self.began(transaction)
        self._of[value] = transaction

    def asked(self, transaction: str) -> None:
        """Its producer is about to request the commit."""
        self.began(transaction)
        if self._outcomes[transaction] is Outcome.OPEN:
            self._outcomes[transaction] = Outcome.ASKED

    def committed(self, transaction: str) -> None:
        """Its producer received the successful commit response."""
        if self._outcomes[transaction] is Outcome.ABORTED:
            self._findings.broken(
                "G1a", f"{transaction} was acknowledged as committed after it was acknowledged as aborted"
            )
        elif self._outcomes[transaction] is Outcome.OPEN:
            self._findings.broken(
                "precommitted-read", f"{transaction} was acknowledged as committed without a commit request"
            )
        self._outcomes[transaction] = Outcome.COMMITTED
        self.committed_count += 1

    def aborted(self, transaction: str) -> None:
        """Its producer received the abort response, or a final rejection of its commit."""
        if self._outcomes[transaction] is Outcome.COMMITTED:
            self._findings.broken("lost-write", f"{transaction} was acknowledged as aborted after it was committed")
        reader = self._read.get(transaction)
        if reader is not None:
            self._findings.broken("G1a", f"{reader} read something of {transaction}, which was aborted")
        self._outcomes[transaction] = Outcome.ABORTED
        self.aborted_count += 1

    def of(self, value: str) -> str | None:
        """The transaction of a value, None if it was sent in none."""
        return self._of.get(value)

    def outcome(self, transaction: str) -> Outcome:
        """The known outcome."""
        return self._outcomes[transaction]

    def may_be_read(self, value: str) -> bool:
        """Whether read_committed may return it, by current knowledge."""
        transaction = self._of.get(value)
        return transaction is None or self._outcomes[transaction] in (Outcome.ASKED, Outcome.COMMITTED)

    def read(self, client: str, value: str) -> None:
        """`client` read a value of it by read_committed."""
        transaction = self._of.get(value)
        if transaction is None:
            return
        outcome = self._outcomes[transaction]
        if outcome is Outcome.ABORTED:
            self._findings.broken("G1a", f"{client} read {value}, which {transaction} wrote and was aborted")
        elif outcome is Outcome.OPEN:
            self._findings.broken(
                "precommitted-read", f"{client} read {value} before the commit request of {transaction}"
            )
        self._read.setdefault(transaction, client)

    def finish(self, visible: frozenset[str]) -> None:
        """Check by all values that read_committed returns at the end, of all topics."""
        whole: dict[str, bool] = {}
        for value, transaction in self._of.items():
            outcome = self._outcomes[transaction]
            found = value in visible
            if outcome is Outcome.COMMITTED and not found:
                self._findings.broken("lost-write", f"{value} of {transaction}, which was committed, is not there")
            elif found and outcome not in (Outcome.ASKED, Outcome.COMMITTED):
                rule = "G1a" if outcome is Outcome.ABORTED else "precommitted-read"
                self._findings.broken(rule, f"{value} of {transaction}, which is {outcome.value}, is there at the end")
            elif outcome is Outcome.ASKED and whole.setdefault(transaction, found) != found:
                self._findings.broken("torn-transaction", f"a part of {transaction} is there, and {value} is not so")
