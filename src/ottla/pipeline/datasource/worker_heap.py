"""Heap of Spark's Python workers, in which Spark's daemon searches for cycles after each task.

A worker with Arrow, PySpark and Ottla has some 60,000 objects, all of which live as long as it does: 33 ms of CPU a
task, and two workers a task. The search skips frozen objects (`gc.freeze`).
"""

from __future__ import annotations

import gc
import sys
from functools import cache
from typing import Literal

DAEMON = "pyspark.daemon"


@cache
def freeze_heap(task: Literal["read", "write", "plan"]) -> None:
    """Freeze after the first task of its kind, which has imported all modules; in processes of the daemon only."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name == DAEMON:
        gc.collect()
        gc.freeze()
