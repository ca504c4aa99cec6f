"""Spark itself: sessions, the package and environment that travel with a job, probes of a master, schedules."""
