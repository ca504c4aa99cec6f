"""Coordinators on internal topics: loaded as leadership comes, found by key, given up as it goes."""
