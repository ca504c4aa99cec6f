"""Transaction verification: proof that a coordinator added the partition to a producer's transaction (KIP-890).

Before a batch may open a transaction in a partition, the broker begins a verification here and asks the coordinator.
The append then presents the guard of that verification. A guard is valid until a transactional batch of the producer is
appended, a marker ends the transaction, or the producer expiration passes. So a response after the marker opens
nothing.

Producers with an epoch that rises with each transaction (`supports_epoch_bump`) may begin the next verification before
the marker of the last transaction arrives; it then stays valid.

At most `MAX_VERIFICATIONS` for each partition; beyond that the oldest is dropped. The limit is needed because clients
can send any producer id. Not here: requests to the coordinator (`server`), and the check of a guard (`producer_state`).
"""

from __future__ import annotations

MAX_VERIFICATIONS = 10_000


class VerificationGuard:
    """One verification of a producer in a partition; guards are compared by identity.

    `lowest_sequence` is the first sequence of the batches of `producer_epoch` that wait for the response: no other may
    be appended before it.
    """

    __slots__ = ("began_ms", "lowest_sequence", "producer_epoch", "supports_epoch_bump")

    def __init__(self, began_ms: int, producer_epoch: int, sequence: int, *, supports_epoch_bump: bool) -> None:
        self.began_ms = began_ms
        self.producer_epoch = producer_epoch
        self.lowest_sequence = sequence
        self.supports_epoch_bump = supports_epoch_bump

    def note(self, sequence: int, *, supports_epoch_bump: bool) -> None:
        """Lower the sequence for another batch of the epoch that waits for the same response."""
        if sequence < self.lowest_sequence:
            self.lowest_sequence = sequence
        if not supports_epoch_bump:
            self.supports_epoch_bump = False  # then a marker of this epoch may end its own transaction


class Verifications:
    """Running verifications of one partition, by producer id."""

    __slots__ = ("guards",)

    def __init__(self) -> None:
        self.guards: dict[int, VerificationGuard] = {}
        """Changed here only; mostly empty."""

    def get(self, producer_id: int) -> VerificationGuard | None:
        return self.guards.get(producer_id)

    def begin(
        self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard:
        """Return the producer's guard, the same for all its batches that wait for one response."""
        guards = self.guards
        guard = guards.get(producer_id)
        if guard is not None:
            if producer_epoch <= guard.producer_epoch:
                if producer_epoch == guard.producer_epoch:
                    guard.note(sequence, supports_epoch_bump=supports_epoch_bump)
                return guard
            # The state of an older epoch, and its kind of producer, say nothing about this one.
            del guards[producer_id]
        if len(guards) >= MAX_VERIFICATIONS:
            del guards[next(iter(guards))]
        guard = VerificationGuard(now_ms, producer_epoch, sequence, supports_epoch_bump=supports_epoch_bump)
        guards[producer_id] = guard
        return guard

    def end(self, producer_id: int, producer_epoch: int, *, marker: bool) -> None:
        """Remove the guard after a transactional batch of the producer, or the `marker` of its transaction."""
        guard = self.guards.get(producer_id)
        if guard is None:
            return
        if marker and guard.supports_epoch_bump and producer_epoch == guard.producer_epoch:
            return  # it belongs to the next transaction, which begins with the epoch of the marker
        del self.guards[producer_id]

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Remove verifications without a batch after the expiration time."""
        guards = self.guards
        while guards:
            oldest = next(iter(guards))
            if now_ms - guards[oldest].began_ms < expiration_ms:
                return
            del guards[oldest]
