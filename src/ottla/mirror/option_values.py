"""Values of options of `ottla mirror` that its help shows, without the modules that use them."""

from __future__ import annotations

STOP, SKIP = "stop", "skip"
"""`--on-refused`: what happens to a record that the target rejects."""
PLACE = "{topic}"
"""Placeholder of the topic name in the template of `--rename`."""
