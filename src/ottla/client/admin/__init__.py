"""Admin requests of the tools, by subject (ACLs, groups, quotas, users, ...), and `Cluster`, their facade."""
