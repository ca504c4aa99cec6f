"""Coordinators on internal topics: loaded on becoming leader, found by key, unloaded on losing leadership."""
