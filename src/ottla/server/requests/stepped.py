"""Responses built in short steps, so that other clients do not wait for a whole large one.

A handler with a large response returns a generator instead of a response: it pauses by `yield` after each short
step and returns the response. A request that names many items is divided: each part goes through guard and handler as
a request of its own, and the responses of all parts are merged into one.

The first slice runs at once unless other requests are queued; a response that fits in it is then not parked. The rest
waits in the queue of `ottla.common.platform.shares`; the request is parked meanwhile, which preserves the order of
responses of a connection.

Invariants: between two steps anything may change. A step therefore reads either an immutable image that the handler
took first, or looks up each item again and answers a removed one as not found. A closed connection ends the work. Each
item of a divided request is answered once, however often it is named.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from ottla.common.errors import InvariantError, KafkaError
from ottla.common.platform.shares import SHARE_S, FairQueue, QueuedWork
from ottla.server.requests.request import Request

PART_ITEMS = 64
"""Items answered in one step, unless the API overrides it."""
GROUPED_ITEMS = 512
"""Items that one step checks for repetitions."""

Steps = Generator["PartRequest | None", None, Any]
"""Yields None between steps, or a parked part until it is answered; returns the response."""


class PartMessage(NamedTuple):
    """The request of one part."""

    message: Any
    continues: int = 0
    """How many levels of its first item continue the last item of the part before; 0: a new item."""


Parts = Generator[PartMessage | None, None, None]
"""Yields the parts in order, and None for pauses between short steps."""


class Division(NamedTuple):
    """Division of a request that names many items."""

    asked: tuple[str, ...]
    """The attributes of the request that list its items; a request uses one of them."""
    answered: str
    """The list of the response with the results."""
    key: Callable[[Any], Hashable] | None = None
    """Identity of an item: equal ones are in one part. None: the order is preserved."""
    mentions: int | None = None
    """How many repetitions of an item the handler sees. None: all. 1: the first. 2: enough to notice a repetition."""
    items: int = PART_ITEMS
    """How many items a part has."""
    inner: tuple[tuple[str, str], ...] = ()
    """Nested lists of an item, outermost first, each as in the request and in the answer. The innermost entries are
    counted as items, and an item with too many is cut. Needs no key."""
    together: bool = False
    """Whether a request uses all of `asked`; needs a key."""

    def parts(self, message: Any) -> Parts | None:
        """The parts of `message`; None if one step answers it."""
        used = [name for name in self.asked if getattr(message, name)][: None if self.together else 1]
        if not used or not (self._count(message, used) > self.items or self._repeats(message, used)):
            return None
        return self._grouped(message, used, self.key) if self.key is not None else self._cut(message, used[0])

    def _count(self, message: Any, used: Sequence[str]) -> int:
        count = sum(len(getattr(message, name)) for name in used)
        entries = getattr(message, used[0])
        for name, _ in self.inner:
            if count > self.items:
                break
            entries = [entry for item in entries for entry in getattr(item, name) or ()]
            count = max(count, len(entries))
        return count

    def _repeats(self, message: Any, used: Sequence[str]) -> bool:
        """Whether a short list repeats an item that is to be answered once."""
        if self.mentions != 1 or self.key is None:
            return False
        items = getattr(message, used[0])
        return len({self.key(item) for item in items}) < len(items)

    def _grouped(self, message: Any, used: Sequence[str], key: Callable[[Any], Hashable]) -> Parts:
        """Parts by key: items with equal keys are in one part."""
        groups: dict[Hashable, list[tuple[str, Any]]] = {}
        for name in used:
            items = getattr(message, name)
            for start in range(0, len(items), GROUPED_ITEMS):
                for item in items[start : start + GROUPED_ITEMS]:
                    group = groups.setdefault(key(item), [])
                    if self.mentions is None or len(group) < self.mentions:
                        group.append((name, item))
                yield None
        part: dict[str, list[Any]] = {name: [] for name in used}
        count = 0
        for group in groups.values():
            if count >= self.items:
                yield PartMessage(_with(message, part))
                part, count = {name: [] for name in used}, 0
            for name, item in group:
                part[name].append(item)
            count += len(group)
        yield PartMessage(_with(message, part))

    def _cut(self, message: Any, used: str) -> Parts:
        """In the order of the request; an item with more entries than a part has is in several."""
        part: list[Any] = []
        count, first = 0, 0
        for item in getattr(message, used):
            for piece, size, continues in self._pieces(item, self.inner):
                if part and count + size > self.items:
                    yield PartMessage(_with(message, {used: part}), first)
                    part, count = [], 0
                if not part:
                    first = continues
                part.append(piece)
                count += size
        if part:
            yield PartMessage(_with(message, {used: part}), first)

    def _pieces(self, item: Any, levels: Sequence[tuple[str, str]]) -> Iterator[tuple[Any, int, int]]:
        """An item, or copies of it with some of its entries each: the piece, its entries, the levels that it continues.

        Two pieces of one item are never in one part, since all but the last are full.
        """
        entries: list[Any] = (getattr(item, levels[0][0]) or []) if levels else []
        if len(levels) < 2:
            if len(entries) <= self.items:
                yield item, max(len(entries), 1), 0
                return
            for start in range(0, len(entries), self.items):
                part = entries[start : start + self.items]
                yield _with(item, {levels[0][0]: part}), self.items, int(start > 0)
            return
        part, count, first, is_rest = [], 0, 0, False
        for entry in entries:
            for piece, size, continues in self._pieces(entry, levels[1:]):
                if part and count + size > self.items:
                    yield _with(item, {levels[0][0]: part}), self.items, int(is_rest) + first
                    part, count, is_rest = [], 0, True
                if not part:
                    first = continues
                part.append(piece)
                count += size
        yield (_with(item, {levels[0][0]: part}) if part else item), max(count, 1), int(is_rest) + first

    def merge(self, merged: Any, response: Any, *, continues: int) -> None:
        """Add the response of a part to those before it; the first that failed as a whole decides for the request."""
        _join(getattr(merged, self.answered), getattr(response, self.answered), self.inner, continues)
        if getattr(response, "error_code", 0) and not merged.error_code:
            merged.error_code = response.error_code
            if hasattr(response, "error_message"):
                merged.error_message = response.error_message
        wait_ms = getattr(response, "throttle_time_ms", 0)
        if wait_ms:
            merged.throttle_time_ms = max(merged.throttle_time_ms, wait_ms)


def _join(answers: list[Any], more: list[Any], levels: Sequence[tuple[str, str]], continues: int) -> None:
    """Append answers; the first of `more` is merged into the last of `answers` for as many levels as it continues."""
    if continues and answers and more:
        last, rest = answers[-1], more[0]
        name = levels[0][1]
        if not getattr(last, "error_code", 0):
            if code := getattr(rest, "error_code", 0):
                last.error_code = code
                setattr(last, name, getattr(rest, name))
            else:
                _join(getattr(last, name), getattr(rest, name), levels[1:], continues - 1)
        more = more[1:]
    answers.extend(more)


def _with(message: Any, values: dict[str, list[Any]]) -> Any:
    """A copy with other lists."""
    made = copy.copy(message)
    for name, value in values.items():
        setattr(made, name, value)
    return made


def itself(item: Hashable) -> Hashable:
    """The key if items are names."""
    return item


class PartRequest(Request):
    """A part of a divided request, as guard and handler see it."""

    __slots__ = ("_build", "resume")

    def __init__(self, whole: Request, message: object) -> None:
        super().__init__(
            whole.dispatcher,
            whole.channel,
            whole.api_key,
            whole.api_version,
            whole.correlation_id,
            whole.client_id,
            whole.started_s,
        )
        self.message = message
        self._build: Callable[[], object] | None = None
        self.resume: Callable[[], None] | None = None
        """Continues the whole request once this part is answered; set while it waits."""

    @property
    def is_answered(self) -> bool:
        """Whether `answer` was called."""
        return self._build is not None

    def answer(self, build: Callable[[], object]) -> None:
        """See `Request`."""
        self._build = build
        resume, self.resume = self.resume, None
        if resume is not None:
            resume()

    def response(self) -> object:
        """The response of the part, a message or a generator of one; raises the exception given to `answer`.

        To be called once: `_build` usually refers to this part, and would keep it until a garbage collection.
        """
        build, self._build = self._build, None
        if build is None:
            raise InvariantError("a part of a request has no answer")
        return build()


PartHandler = Callable[[PartRequest], object]
"""Guard and handler for one part, `serve` within `RequestDispatcher`: returns the response, a generator that builds it,
or None when the part is parked."""
PartRefusal = Callable[[PartRequest, KafkaError], object]
"""Builds the response for a part that failed as a whole, by the row of the API."""


def divide(request: Request, division: Division, parts: Parts, serve: PartHandler, refuse: PartRefusal) -> Steps:
    """Answer a request part by part."""
    merged: Any = None
    for part in parts:
        if part is not None:
            response: Any = yield from _answer_part(PartRequest(request, part.message), serve, refuse)
            if merged is None:
                merged = response
            else:
                division.merge(merged, response, continues=part.continues)
        yield None
    return merged


def _answer_part(part: PartRequest, serve: PartHandler, refuse: PartRefusal) -> Steps:
    try:
        response = serve(part)
        if isinstance(response, Generator):
            response = yield from response
        if response is None:
            if not part.is_answered:
                yield part
            response = part.response()
            if isinstance(response, Generator):
                response = yield from response
    except KafkaError as error:
        response = refuse(part, error)
    if part.amend is None:
        return response
    amended = part.amended(response)
    return (yield from amended) if isinstance(amended, Generator) else amended


class SteppedAnswer:
    """One response being built. Its owner is the dispatcher."""

    __slots__ = ("_ended", "_failed", "_monotonic", "_share", "_shares", "_steps", "spent_s")

    def __init__(
        self,
        steps: Steps,
        monotonic: Callable[[], float],
        shares: FairQueue | None,
        ended: Callable[[Any, float], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`ended` gets the result of `steps` and `spent_s`, `failed` their exception, unless `begin` reports it."""
        self._steps = steps
        self._monotonic = monotonic
        self._shares = shares
        self._ended = ended
        self._failed = failed
        self._share: QueuedWork | None = None
        self.spent_s = 0.0
        """Time on the loop after `begin`."""

    def begin(self) -> Any:
        """Run the first slice, unless others wait for theirs; returns the result if that is all, else None."""
        if self._shares is not None and self._shares.waiting:
            self._wait()
            return None
        return self._advance()

    def close(self) -> None:
        """Cancel the work."""
        if self._share is not None:
            self._share.cancel()
        self._steps.close()

    def _wait(self) -> None:
        if self._shares is None:
            self._continue()
        else:
            self._share = self._shares.add(self._continue)

    def _continue(self) -> None:
        self._share = None
        started_s = self._monotonic()
        try:
            result = self._advance()
        except InvariantError:
            raise
        except Exception as error:
            self._failed(error)
            return
        finally:
            self.spent_s += self._monotonic() - started_s
        if result is not None:
            self._ended(result, self.spent_s)

    def _advance(self) -> Any:
        monotonic = self._monotonic
        deadline_s = monotonic() + SHARE_S
        while True:
            try:
                part = next(self._steps)
            except StopIteration as end:
                return end.value
            if part is not None:
                part.resume = self._wait
                return None
            if self._shares is not None and monotonic() >= deadline_s:
                self._wait()
                return None
