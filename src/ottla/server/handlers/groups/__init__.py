"""Consumer groups: membership and committed offsets."""
