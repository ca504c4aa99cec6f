"""Time limits for processes of tests on a busy machine; they end before the test's own limit."""

from __future__ import annotations

RUN_S = 500.0
"""For a process that may start Spark, which takes ten seconds on an idle machine."""
