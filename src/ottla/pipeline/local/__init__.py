"""Execution of tasks without Spark: in this process, or in worker processes of this machine."""
