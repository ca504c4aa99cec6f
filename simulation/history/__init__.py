"""What clients were promised and what they saw, checked while it happens and at the end (docs/guarantees.md).

Every value is written once in the intention of its producer, so it identifies its record. The rules, by the names of
Jepsen's workload for Kafka where it has one:

- lost-write: an acknowledged record is at its offset at the end, and one of a committed transaction is to be read by
  read_committed; lost-read: so is one that was served;
- inconsistent-offsets: at an offset everybody is told of and reads the same value;
- duplicate: a value is never at two offsets;
- nonmonotonic-send: the values of one producer stand in the order in which it sent them; int-nonmonotonic-send within
  one transaction;
- nonmonotonic-poll, poll-skip: who chose its partitions reads each record after the one before; int-nonmonotonic-poll
  and int-poll-skip within one poll, which hold for who subscribed as well;
- phantom: nobody reads what nobody sent;
- unseen: what is committed has been read by everybody who read to the end;
- end-went-back: the latest offset that ListOffsets tells is never below one whose record was served;
- G1a: nobody reads by read_committed what an aborted transaction wrote;
- precommitted-read: nor what a transaction wrote before its producer asked for the commit;
- torn-transaction: a transaction is there whole, in all its partitions, or not at all;
- lost-copy, duplicate-copy, reordered-copy: of consume-transform-produce the output equals the input;
- hanging-transaction: once faults are over the last stable offset reaches the end in bounded time.

The worst realtime lag is a figure: from a record's acknowledgement to the first time that a reader comes to it.
A compacted topic keeps what no later record of its key has taken the place of (`compacted`).
Allowed, as with Apache Kafka: transactions that write between one another's records (G0, int-send-skip), and, where
partitions are handed out by a group, polls that go back or on (poll-skip, nonmonotonic-poll).

Everything here is pure: it is told, and knows no clock but the one that its trace has. Simulated clusters and real ones
are judged by it (`simulation.replication`, `simulation.transactions`, `tests/chaos`). Left out: who owns a partition in
a group, which `simulation.checkers` and `tests/clients/group_history.py` judge.
"""

from simulation.history.compacted import CompactedHistory
from simulation.history.copies import judge_copies
from simulation.history.findings import Findings
from simulation.history.liveness import Progress, judge_stable_offsets
from simulation.history.log import Lag, LogHistory, Losses, Place
from simulation.history.transactions import Outcome, Transactions

__all__ = [
    "CompactedHistory",
    "Findings",
    "Lag",
    "LogHistory",
    "Losses",
    "Outcome",
    "Place",
    "Progress",
    "Transactions",
    "judge_copies",
    "judge_stable_offsets",
]
