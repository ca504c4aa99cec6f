"""Formats collapsed stacks of py-spy: functions by their own time, and a call tree without minor branches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

MIN_SHARE = 0.015
SELF_ROWS = 30
SOURCE = re.compile(r"\((?:.*/)?((?:[\w.]+/)?[\w.]+?)(?::\d+)?\)$")
"""Matches the file of a frame and its folder, without paths of the machine and without line numbers, so that samples of
one function are counted together.
"""

UNNAMED = re.compile(r"^0x[0-9a-f]+")
WAITS = ("PyThread_acquire_lock_timed", "epoll_pwait")
"""A pool thread waiting for work, and an idle event loop: py-spy may count both as running."""

LOOP = "uv_run "
"""Frames above it are the same for every sample."""

SYSTEM_CALL = re.compile(
    r"(epoll_\w+|fallocate\w*|fdatasync|lseek\w*|p?readv?\w*|p?writev?\w*|sendmsg|\w*stat\w*) \(libc"
)

Stacks = Counter[tuple[str, ...]]


def collapsed(text: str) -> Stacks:
    """Returns stacks, outermost frame first, with the number of their samples."""
    stacks: Stacks = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [UNNAMED.sub("?", SOURCE.sub(r"(\1)", frame)) for frame in stack.split(";")]
        if any(frame.startswith(WAITS) for frame in frames):
            continue
        loop = next((at for at, frame in enumerate(frames) if frame.startswith(LOOP)), 0)
        stacks[tuple(frames[loop:])] += int(count)
    return stacks


def weighed(stacks: Stacks, kernel_share: float) -> Stacks:
    """Scales samples within system calls to the share that perf measured.

    py-spy stops the process for a sample, and a stop takes effect on return from the kernel: without scaling, system
    calls would seem several times as expensive as they are.
    """
    kernel = sum(count for stack, count in stacks.items() if SYSTEM_CALL.match(stack[-1]))
    ours = sum(stacks.values()) - kernel
    if not kernel or not ours:
        return stacks
    scaled: Stacks = Counter()
    for stack, count in stacks.items():
        within = SYSTEM_CALL.match(stack[-1]) is not None
        share = kernel_share / kernel if within else (1 - kernel_share) / ours
        scaled[stack] = round(1_000_000 * share * count)
    return scaled


def self_times(stacks: Stacks) -> list[str]:
    """Returns innermost frames with their share; a native frame with the Python function that called it."""
    own: Counter[str] = Counter()
    for stack, count in stacks.items():
        leaf = stack[-1]
        caller = next((frame for frame in reversed(stack) if ".py" in frame), "")
        own[leaf if ".py" in leaf or not caller else f"{leaf} < {caller}"] += count
    total = max(1, sum(own.values()))
    return [f"{100 * count / total:5.1f} %  {frame}" for frame, count in own.most_common(SELF_ROWS)]


class Branch:
    """One frame of the call tree."""

    __slots__ = ("children", "count")

    def __init__(self) -> None:
        self.count = 0
        self.children: dict[str, Branch] = {}

    def lines(self, total: int, depth: int) -> Iterator[str]:
        for frame, child in sorted(self.children.items(), key=lambda pair: -pair[1].count):
            if child.count >= MIN_SHARE * total:
                yield f"{100 * child.count / total:5.1f} %  {' ' * depth}{frame}"
                yield from child.lines(total, depth + 1)


def call_tree(stacks: Stacks) -> list[str]:
    """Returns every call with its share, callers above their callees."""
    root = Branch()
    for stack, count in stacks.items():
        branch = root
        branch.count += count
        for frame in stack:
            branch = branch.children.setdefault(frame, Branch())
            branch.count += count
    return list(root.lines(max(1, root.count), 0))
