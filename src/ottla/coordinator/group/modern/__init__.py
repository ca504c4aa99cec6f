"""Groups with server-side assignment: consumer groups of KIP-848."""
