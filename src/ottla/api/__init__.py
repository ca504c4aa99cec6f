"""The client for programs: producers, consumers and administration, as `from ottla import ...` gives them."""
