"""Spark itself: sessions, the package and environment that are sent with a job, probes of a master, schedules."""
