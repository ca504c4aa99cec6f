"""Builds and tests the files of a release; CONTRIBUTING.md has the steps of one."""
