"""Delegation token as stored in the metadata (KIP-48), without its HMAC, which is derived from the id and a secret."""

from __future__ import annotations

from typing import NamedTuple


class DelegationToken(NamedTuple):
    """A token in the metadata log. Principals as "User:name", times in milliseconds since the Unix epoch."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    """End of the lifetime, which no renewal exceeds."""
    expiry_ms: int

    def belongs_to(self, principal: str) -> bool:
        """Return whether `principal` may renew, expire and describe the token."""
        return principal in (self.owner, self.requester) or principal in self.renewers

    def is_over(self, now_ms: int) -> bool:
        """Return whether the token is expired and rejected by authentication."""
        return self.expiry_ms < now_ms or self.max_ms < now_ms
