"""One module a workload; each has `cells()`, see harness/cells.py."""
