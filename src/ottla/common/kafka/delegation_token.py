"""A delegation token as the metadata has it (KIP-48): without its password, which is made of its id and a secret."""

from __future__ import annotations

from typing import NamedTuple


class DelegationToken(NamedTuple):
    """A token as the metadata log has it. Principals as "User:name", times in milliseconds since the Unix epoch."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    """Nobody can renew it beyond."""
    expiry_ms: int

    def belongs_to(self, principal: str) -> bool:
        """Whether `principal` may renew, end and see it."""
        return principal in (self.owner, self.requester) or principal in self.renewers

    def is_over(self, now_ms: int) -> bool:
        """Whether it lets nobody in any more."""
        return self.expiry_ms < now_ms or self.max_ms < now_ms
