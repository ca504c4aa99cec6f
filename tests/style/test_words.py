"""A ratchet: the number of banned words in a package may only fall, and texts for users have none."""

from __future__ import annotations

from .words import current_counts, recorded_counts, search, search_python

REMEDY = "reword the text (`python -m tests.style.words PATH` lists the places); lower counts are recorded by `--write`"


def test_banned_words_are_as_many_as_recorded() -> None:
    assert current_counts() == recorded_counts(), REMEDY


def test_texts_for_users_have_no_banned_word() -> None:
    assert {name: counts["user"] for name, counts in current_counts().items() if "user" in counts} == {}, REMEDY


def test_banned_words_are_found() -> None:
    texts = ["the client is told so", "nobody knows", "it goes on there", "the id is no number", "lies in the log"]
    found = [place.text for text in texts for place in search("page", 1, text, is_user_text=True)]
    assert found == texts


def test_banned_words_in_python_are_divided_by_reader() -> None:
    module = '"""What is it."""\n# a wish\ndef told(): raise ValueError("nobody")\n'
    found = {(place.found.lower(), place.is_user_text) for place in search_python("src/ottla/module.py", module)}
    assert found == {("what is", False), ("wish", False), ("told", False), ("nobody", True)}
