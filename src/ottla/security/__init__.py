"""Who speaks, in secret, and what they may do: certificates, contexts of TLS, mechanisms of SASL, principals, ACLs."""
