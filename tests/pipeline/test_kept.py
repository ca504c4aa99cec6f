"""The pool of objects that a worker reuses between its tasks."""

from __future__ import annotations

from ottla.pipeline.model.lru_pool import LruPool


def test_taken_object_is_not_in_pool() -> None:
    kept: LruPool[str] = LruPool(2)
    kept.keep("a", "one")
    assert kept.take("b") is None
    assert kept.take("a") == "one"
    assert kept.take("a") is None


def test_the_oldest_go() -> None:
    gone: list[str] = []
    kept = LruPool(2, gone.append)
    for key in ("a", "b", "c"):
        kept.keep(key, f"client {key}")
    assert gone == ["client a"]
    kept.keep("b", "another b")
    assert gone == ["client a", "client b"]
    assert (kept.take("a"), kept.take("b"), kept.take("c")) == (None, "another b", "client c")
