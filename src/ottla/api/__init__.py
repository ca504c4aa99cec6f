"""The client API for programs: producers, consumers and administration, exported by `from ottla import ...`."""
