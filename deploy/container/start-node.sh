#!/bin/sh
# Formats an empty data directory of one of three nodes, and starts the broker.
# NODE_ID is 1, 2 or 3; HOST is the name under which the other nodes and the clients reach this one.
# NEW_CLUSTER=true is for the first start of all nodes. Later an empty volume is a lost one: the node joins the cluster
# with a new directory id, copies its data, and replaces its vote. As an initial voter it would vote as if it had lost
# nothing, and committed metadata could be lost.
set -eu
data=/var/lib/ottla
settings=/tmp/server.properties
cat > "$settings" <<END
process.roles=broker,controller
node.id=$NODE_ID
broker.rack=$HOST
listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093
advertised.listeners=PLAINTEXT://$HOST:9092,CONTROLLER://$HOST:9093
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.bootstrap.servers=broker1:9093,broker2:9093,broker3:9093
controller.quorum.auto.join.enable=true
default.replication.factor=3
min.insync.replicas=2
log.dirs=$data
END
if [ ! -e "$data/meta.properties" ]; then
    if [ "${NEW_CLUSTER:-false}" = true ]; then
        voters=--initial-controllers=$INITIAL_CONTROLLERS
    else
        voters=--no-initial-controllers
        echo "$data is empty: node $NODE_ID joins the existing cluster; a new cluster starts with NEW_CLUSTER=true" >&2
    fi
    ottla format --config "$settings" --cluster-id "$CLUSTER_ID" "$voters"
fi
exec ottla start --config "$settings" --log-format json --metrics-port 9404
