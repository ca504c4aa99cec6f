"""Python runs this at its start where the directory is on PYTHONPATH: what OTTLA_TEST_WITHOUT names is not found."""

import os
import sys

for _name in os.environ.get("OTTLA_TEST_WITHOUT", "").split(","):
    if _name:
        sys.modules[_name] = None  # type: ignore[assignment]
