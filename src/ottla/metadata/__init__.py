"""The cluster metadata image: immutable, changed by replaying records."""
