"""One module per workload; each has `cells()`, see harness/cells.py."""
