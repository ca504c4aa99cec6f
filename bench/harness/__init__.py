"""Common parts of all benchmarks: peers, cells, the runner, reports and the comparison of two checkouts."""
