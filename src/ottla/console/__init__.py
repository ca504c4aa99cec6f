"""Web console: pages that show and change a cluster, for a browser on this machine or behind a reverse proxy.

The console is a client: it runs in a process of its own and reaches the cluster over the wire, with the credentials of
the signed-in user. So ACLs, quotas and the broker's audit log apply to each page. `routes.ROUTES` lists every request
that it serves.

The extra `console` has its libraries. Not here: requests to the cluster (`ottla.client`), search (`ottla.search`).
"""
