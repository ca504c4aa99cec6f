"""Share groups of the group coordinator (KIP-932)."""
