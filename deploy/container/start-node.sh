#!/bin/sh
# Formats the data directory of one of three nodes at its first start, and starts the broker.
# NODE_ID is 1, 2 or 3; HOST is the name under which the other nodes and the clients reach this one.
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
default.replication.factor=3
min.insync.replicas=2
log.dirs=$data
END
if [ ! -e "$data/meta.properties" ]; then
    ottla format --config "$settings" --cluster-id "$CLUSTER_ID" --initial-controllers "$INITIAL_CONTROLLERS"
fi
exec ottla start --config "$settings" --log-format json --metrics-port 9404
