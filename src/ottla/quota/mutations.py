"""Controller mutation quotas (KIP-599): rates of partition creations and deletions, counted by the controller.

Each topic of a request is charged with its partitions once it has passed every other check. A client without tokens
is refused if its version knows the error; an older client is served and throttled. Bounded like `quota.groups`.
"""

from __future__ import annotations

from collections import OrderedDict

from ottla.common.errors import ErrorCode, KafkaError
from ottla.quota.groups import MAX_GROUPS
from ottla.quota.limits import CONTROLLER_MUTATION_RATE, ClientLimits, Group, Quotas, user_of
from ottla.quota.token_bucket import TokenBucket
from ottla.quota.windows import Windows


class Mutation:
    """The charges of one request; none without a bucket. `throttle_ms` is the throttle time of its client."""

    __slots__ = ("_bucket", "_now_s", "_strict", "throttle_ms")

    def __init__(self, bucket: TokenBucket | None, now_s: float, *, strict: bool) -> None:
        self._bucket = bucket
        self._now_s = now_s
        self._strict = strict
        self.throttle_ms = 0

    def charge(self, partitions: int) -> None:
        """Charge the partitions of one topic. Raises KafkaError THROTTLING_QUOTA_EXCEEDED without tokens."""
        bucket = self._bucket
        if bucket is None:
            return
        if self._strict:
            self.throttle_ms = bucket.throttle_ms(self._now_s)
            if self.throttle_ms > 0:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
            bucket.take(partitions, self._now_s)
            return
        bucket.take(partitions, self._now_s)
        self.throttle_ms = bucket.throttle_ms(self._now_s)


UNCHARGED = Mutation(None, 0.0, strict=False)
"""For requests without a client."""


class MutationQuotas:
    """The token buckets of all groups."""

    __slots__ = ("_buckets", "_limits", "_quotas", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._quotas: Quotas = {}
        self._limits = ClientLimits({}, CONTROLLER_MUTATION_RATE)
        self._buckets: OrderedDict[Group, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def begin(self, quotas: Quotas, principal: str, client_id: str, now_s: float, *, strict: bool) -> Mutation:
        """Begin a request of a client; `quotas` is processed only after a change."""
        if quotas is not self._quotas:
            self._quotas = quotas
            self._limits = ClientLimits(quotas, CONTROLLER_MUTATION_RATE)
        limit = self._limits.of(user_of(principal), client_id)
        return Mutation(None if limit is None else self._bucket(*limit, now_s), now_s, strict=strict)

    def _bucket(self, group: Group, rate: float, now_s: float) -> TokenBucket:
        bucket = self._buckets.get(group)
        if bucket is None:
            self._make_room(now_s)
            bucket = self._buckets[group] = TokenBucket(self._windows, rate, now_s)
            return bucket
        self._buckets.move_to_end(group)
        if bucket.rate != rate:
            bucket.use_rate(rate, now_s)
        return bucket

    def _make_room(self, now_s: float) -> None:
        for _ in range(2):
            group, oldest = next(iter(self._buckets.items()), (None, None))
            if group is None or oldest is None or not (oldest.is_full(now_s) or len(self._buckets) >= MAX_GROUPS):
                return
            del self._buckets[group]
