"""Security: certificates, TLS contexts, SASL mechanisms, principals and ACLs."""
