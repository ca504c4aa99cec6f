"""The programs of examples/delivery match their delivery guarantee after a kill."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "delivery"
LIMIT_S = 280.0
ROW = re.compile(r"^ *([\d,]+)  (\w+)", re.MULTILINE)


def outcome(name: str) -> dict[str, int]:
    """The printed table by row name; OTTLA_TEST_BOOTSTRAP=host:port selects another broker."""
    other = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    command = [sys.executable, str(EXAMPLES / name), *(("--bootstrap-server", other) if other else ())]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert result.returncode == 0, result.stderr
    assert "kill -9" in result.stdout
    return {word: int(number.replace(",", "")) for number, word in ROW.findall(result.stdout)}


@pytest.mark.parametrize(
    ("name", "lost", "doubled", "aborted"),
    [
        ("at_most_once.py", True, False, False),
        ("at_least_once.py", False, True, False),
        ("exactly_once.py", False, False, True),
    ],
)
def test_delivery_example_matches_its_guarantee(name, lost, doubled, aborted):
    found = outcome(name)
    assert found["numbers"] == 1000
    assert (found["lost"] > 0, found["doubled"] > 0, found["aborted"] > 0) == (lost, doubled, aborted), found
    assert found["results"] == 1000 - found["lost"] + found["doubled"]
