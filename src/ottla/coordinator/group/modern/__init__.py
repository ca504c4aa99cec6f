"""Groups whose coordinator decides assignments: consumer groups of KIP-848."""
