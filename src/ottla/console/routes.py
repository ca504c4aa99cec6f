"""The route table: every request that the console serves, and the operation that it needs.

A change of the cluster is a POST. `application` checks each row in the same way, so a page cannot forget it.
"""

from __future__ import annotations

from ottla.console.pages import (
    acls,
    cluster,
    groups,
    live,
    overview,
    produce,
    quotas,
    records,
    sign_in,
    static,
    topic,
    topic_changes,
    topics,
    transactions,
    users,
)
from ottla.console.route import Operation, Route

PUBLIC, READ, READ_RECORDS = Operation.PUBLIC, Operation.READ, Operation.READ_RECORDS
PREPARE, WRITE, DESTROY = Operation.PREPARE, Operation.WRITE, Operation.DESTROY

ROUTES = (
    Route("GET", "/static/{name}", "static", static.show, PUBLIC),
    Route("GET", "/sign-in", "sign-in form", sign_in.show, PUBLIC),
    Route("POST", "/sign-in", "sign in", sign_in.sign_in, PUBLIC),
    Route("GET", "/sign-in/issuer", "sign in at issuer", sign_in.go_to_issuer, PUBLIC),
    Route("GET", "/sign-in/callback", "answer of issuer", sign_in.return_from_issuer, PUBLIC),
    Route("POST", "/sign-out", "sign out", sign_in.sign_out, PUBLIC),
    Route("GET", "/", "overview", overview.show, READ),
    Route("GET", "/topics", "topics", topics.show, READ),
    Route("GET", "/topic-sizes", "topic sizes", topics.sizes, READ),
    Route("GET", "/create-topic", "topic form", topics.new, PREPARE),
    Route("POST", "/create-topic", "topic new", topics.create, WRITE),
    Route("GET", "/topics/{topic}", "topic", topic.show, READ),
    Route("GET", "/topics/{topic}/records", "records", records.show, READ_RECORDS),
    Route("GET", "/topics/{topic}/records/{partition}/{offset}", "record", records.show_one, READ_RECORDS),
    Route("GET", "/topics/{topic}/records/{partition}/{offset}/value", "value", records.download_one, READ_RECORDS),
    Route("GET", "/topics/{topic}/export", "export", records.export, READ_RECORDS),
    Route("GET", "/topics/{topic}/live", "live", live.show, READ),
    Route("GET", "/topics/{topic}/tail", "tail", live.stream, READ_RECORDS),
    Route("GET", "/topics/{topic}/produce", "produce form", produce.show, PREPARE),
    Route("POST", "/topics/{topic}/produce", "produce", produce.produce, WRITE),
    Route("GET", "/topics/{topic}/settings", "topic settings", topic.settings, READ),
    Route("GET", "/topics/{topic}/settings/edit", "settings edit", topic_changes.edit_setting, PREPARE),
    Route("GET", "/topics/{topic}/settings/preview", "settings preview", topic_changes.preview_setting, PREPARE),
    Route("POST", "/topics/{topic}/settings/apply", "settings apply", topic_changes.apply_setting, WRITE),
    Route("GET", "/topics/{topic}/groups", "topic groups", topic.groups, READ),
    Route("GET", "/topics/{topic}/manage", "topic manage", topic_changes.manage, PREPARE),
    Route("POST", "/topics/{topic}/partitions", "topic partitions", topic_changes.add_partitions, WRITE),
    Route("GET", "/topics/{topic}/trim", "trim preview", topic_changes.preview_trim, PREPARE),
    Route("POST", "/topics/{topic}/trim", "trim", topic_changes.trim, DESTROY),
    Route("POST", "/topics/{topic}/delete", "topic delete", topic_changes.delete, DESTROY),
    Route("GET", "/groups", "groups", groups.show, READ),
    Route("GET", "/group-lags", "group lags", groups.lags, READ),
    Route("GET", "/group", "group", groups.show_one, READ),
    Route("GET", "/group-lag", "group lag", groups.lag, READ),
    Route("GET", "/group/reset", "reset preview", groups.preview_reset, PREPARE),
    Route("POST", "/group/reset", "group reset", groups.reset, DESTROY),
    Route("POST", "/group/delete", "group delete", groups.delete, DESTROY),
    Route("GET", "/cluster", "cluster", cluster.show, READ),
    Route("GET", "/directory-sizes", "directory sizes", cluster.directory_sizes, READ),
    Route("GET", "/transactions", "transactions", transactions.show, READ),
    Route("GET", "/transaction", "transaction", transactions.show_one, READ),
    Route("POST", "/transaction/end", "transaction end", transactions.end, DESTROY),
    Route("GET", "/users", "users", users.show, READ),
    Route("POST", "/users", "user put", users.put, WRITE),
    Route("GET", "/user/remove", "user removal", users.confirm_removal, PREPARE),
    Route("POST", "/user/remove", "user remove", users.remove, DESTROY),
    Route("GET", "/acls", "acls", acls.show, READ),
    Route("POST", "/acls", "acl create", acls.create, WRITE),
    Route("GET", "/acl/remove", "acl removal", acls.confirm_removal, PREPARE),
    Route("POST", "/acl/remove", "acl remove", acls.remove, DESTROY),
    Route("GET", "/quotas", "quotas", quotas.show, READ),
    Route("POST", "/quotas", "quota set", quotas.put, WRITE),
)
"""No path without a variable has the shape of one with a topic, so a topic can have any name."""
