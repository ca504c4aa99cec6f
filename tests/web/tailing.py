"""The live tail of a topic."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..console.browsing import Browser


def tail(browser: Browser, topic: str, produce: Callable[[], object]) -> dict[str, Any]:
    """The event of the record that `produce` appends while the topic is watched."""
    left = [produce]

    def leaves() -> bool:
        if left and b"Waiting" in browser.answer.body:
            left.pop()()
        return b"event: records" in browser.answer.body

    text = browser.send("GET", f"/topics/{topic}/tail", leaves=leaves).text
    (found,) = json.loads(text.partition("event: records\ndata: ")[2].partition("\n")[0])
    return dict(found)
