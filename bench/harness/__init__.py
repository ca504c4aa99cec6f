"""What every measurement shares: peers, cells, the runner, reports and the comparison of two checkouts."""
