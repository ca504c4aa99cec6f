"""How long what a test starts may take, on a machine that has much else to do: it ends before the test's own limit."""

from __future__ import annotations

RUN_S = 500.0
"""For a process, one that starts Spark too, which takes ten seconds where nobody else works."""
