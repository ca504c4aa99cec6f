"""Admin requests of the tools by subject (ACLs, groups, quotas, users, ...), and their facade `Cluster`."""
