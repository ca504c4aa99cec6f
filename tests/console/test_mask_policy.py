"""The mask file: its checks, the rules that apply to a user, and the single way to records."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ottla.console
from ottla.common.errors import OperatorError
from ottla.console.mask_policy import MaskPolicy, read_masks

FILE = """
[[masks]]
topic = "payments-*"
fields = ["value.card.number", 'headers["token"]']
method = "last 4"
unmasked = ["User:ada", "User:ANONYMOUS"]

[[masks]]
topic = "payments-eu"
fields = ["key"]
method = "hash"
"""


def policy(folder: Path, text: str) -> MaskPolicy:
    path = folder / "masks.toml"
    path.write_text(text)
    return read_masks(str(path), b"secret")


def paths(masks: MaskPolicy, topic: str, principal: str) -> tuple[list[str], tuple[str, ...]]:
    mask, unmasked = masks.masking(topic, principal)
    return [] if mask is None else [str(rule.path) for rule in mask.rules], unmasked


def test_masks_apply_by_topic_and_user(tmp_path):
    masks = policy(tmp_path, FILE)
    fields = ["value.card.number", "headers.token"]
    assert paths(masks, "payments-us", "User:eve") == (fields, ())
    assert paths(masks, "payments-us", "User:ada") == ([], tuple(fields))
    assert paths(masks, "payments-eu", "User:eve") == ([*fields, "key"], ())
    assert paths(masks, "payments-eu", "User:ada") == (["key"], tuple(fields))
    for topic in ("payments", "Payments-us", "xpayments-us", "payments"):
        assert paths(masks, topic, "User:eve") == ([], ())


def entry(**replaced: str) -> str:
    keys = {"topic": '"a"', "fields": '["value"]', "method": '"hidden"', **replaced}
    return "[[masks]]\n" + "\n".join(f"{key} = {value}" for key, value in keys.items())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"at least one section \[\[masks\]\]"),
        ("masks = 1", r"at least one section"),
        ("[masks]\ntopic = 'a'", r"at least one section"),
        ("[[masks]", "is not valid TOML"),
        ("[[mask]]", r"the file: 'mask' is unknown; did you mean masks\?"),
        (entry(methd='"x"'), r"\[\[masks\]\] number 1: 'methd' is unknown; did you mean method\?"),
        (entry() + "\n" + entry(topic='"a b"'), r"number 2: topic must be a topic name"),
        (entry(topic="1"), "topic must be"),
        (entry(fields="[]"), "fields must have 1 to 100 paths"),
        (entry(fields='"value"'), "fields must be a list"),
        (entry(fields='["value..a"]'), r"number 1: 'value\.\.a' is not a path: at character 7"),
        (entry(fields='["offset"]'), "can't be masked"),
        (entry(method='"first 4"'), "is not a method: use hidden, hash, or last N"),
        (entry(method="4"), "is not a method"),
        (entry(unmasked='"User:ada"'), "unmasked must be a list"),
        (entry(unmasked='["ada"]'), "'ada', which is not a user"),
    ],
)
def test_wrong_mask_file_is_refused_in_one_sentence(tmp_path, text, reason):
    with pytest.raises(OperatorError, match=reason) as caught:
        policy(tmp_path, text)
    assert "masks.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_mask_file_is_refused(tmp_path):
    with pytest.raises(OperatorError, match="name another one with --masks"):
        read_masks(str(tmp_path / "absent.toml"), b"")


READING = {"Search", "SearchSession", "PartitionReader", "find_neighbour", "open_decoders", "open_decoder"}
FETCHING = READING | {"fetch"}
"""Names of methods: the function `fetch` is a request to an issuer."""


def test_only_two_modules_read_records():
    """Another one could omit the mask of the user."""
    root = Path(ottla.console.__file__).parent
    found = {
        path.name
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and (getattr(node.func, "attr", "") in FETCHING or getattr(node.func, "id", "") in READING)
    }
    assert found == {"searching.py", "unread.py"}, "unread.py reads only timestamps, which are not masked"
