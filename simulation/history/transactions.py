"""The transactions of all producers: what each wrote, whether its commit was asked for, and what came of it.

A transaction is named by its producer as it likes, once and for all. Whoever never asks for its commit must never see
it committed; whoever asked and was told that it failed, neither. Where the answer was lost, or its producer died
waiting for it, either is right, but for all that it wrote alike.
"""

from __future__ import annotations

from enum import Enum

from simulation.history.findings import Findings


class Outcome(Enum):
    """What is known of a transaction."""

    OPEN = "open"
    """Nobody asked for its commit: if it ends, it is aborted."""
    ASKED = "asked"
    """Its producer asked for the commit and does not know what came of it."""
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transactions:
    """Of one run or round, over all topics."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._outcomes: dict[str, Outcome] = {}
        self._of: dict[str, str] = {}
        """The transaction of each value that was sent in one."""
        self._read: dict[str, str] = {}
        """Who first read something of each transaction by read_committed."""
        self.committed_count = self.aborted_count = 0

    def began(self, transaction: str) -> None:
        """Its producer begins it, perhaps without ever writing to it."""
        self._outcomes.setdefault(transaction, Outcome.OPEN)

    def wrote(self, transaction: str, value: str) -> None:
        """Its producer is about to send a value in it."""
        self.began(transaction)
        self._of[value] = transaction

    def asked(self, transaction: str) -> None:
        """Its producer is about to ask for the commit."""
        self.began(transaction)
        if self._outcomes[transaction] is Outcome.OPEN:
            self._outcomes[transaction] = Outcome.ASKED

    def committed(self, transaction: str) -> None:
        """Its producer was told that it is committed."""
        if self._outcomes[transaction] is Outcome.ABORTED:
            self._findings.broken("G1a", f"{transaction} was told to be committed after it was told to be aborted")
        elif self._outcomes[transaction] is Outcome.OPEN:
            self._findings.broken("precommitted-read", f"{transaction} was told to be committed, which nobody asked")
        self._outcomes[transaction] = Outcome.COMMITTED
        self.committed_count += 1

    def aborted(self, transaction: str) -> None:
        """Its producer was told that it is aborted, or that its commit was refused for good."""
        if self._outcomes[transaction] is Outcome.COMMITTED:
            self._findings.broken("lost-write", f"{transaction} was told to be aborted after it was committed")
        reader = self._read.get(transaction)
        if reader is not None:
            self._findings.broken("G1a", f"{reader} read something of {transaction}, which was aborted")
        self._outcomes[transaction] = Outcome.ABORTED
        self.aborted_count += 1

    def of(self, value: str) -> str | None:
        """The transaction in which it was sent, None when it was sent in none."""
        return self._of.get(value)

    def outcome(self, transaction: str) -> Outcome:
        """What is known of it."""
        return self._outcomes[transaction]

    def may_be_read(self, value: str) -> bool:
        """Whether read_committed may return it, as far as anybody knows now."""
        transaction = self._of.get(value)
        return transaction is None or self._outcomes[transaction] in (Outcome.ASKED, Outcome.COMMITTED)

    def read(self, who: str, value: str) -> None:
        """`who` read it by read_committed."""
        transaction = self._of.get(value)
        if transaction is None:
            return
        outcome = self._outcomes[transaction]
        if outcome is Outcome.ABORTED:
            self._findings.broken("G1a", f"{who} read {value}, which {transaction} wrote and was aborted")
        elif outcome is Outcome.OPEN:
            self._findings.broken(
                "precommitted-read", f"{who} read {value}, and nobody asked for the commit of {transaction}"
            )
        self._read.setdefault(transaction, who)

    def finish(self, visible: frozenset[str]) -> None:
        """Judge by all values that read_committed returns at the end, of all topics."""
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
