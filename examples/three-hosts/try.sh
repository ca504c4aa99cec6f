#!/usr/bin/env bash
# Tries the three configs of this folder on one machine: network namespaces stand for the hosts, a bridge for the network
# between them. Needs root, iproute2, and ottla in the PATH. Everything lives in namespaces that end with this script.
set -euo pipefail
cd "$(dirname "$0")"

if [ "${1:-}" != inside ]; then
    exec unshare --net --mount --pid --fork --kill-child --mount-proc --propagation private -- "$PWD/try.sh" inside
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
servers=host1:9092,host2:9092,host3:9092
declare -A pids

say() { printf '\n=== %s\n' "$*"; }

new_id() { head -c 16 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=' | sed 's/^-/A/'; }

# A host with its cable to the bridge, and its name for everybody.
make_host() {
    ip netns add "host$1"
    ip link add "cable$1" master bridge type veth peer name eth0 netns "host$1"
    ip link set "cable$1" up
    ip -n "host$1" link set lo up
    ip -n "host$1" link set eth0 up
    ip -n "host$1" address add "10.0.0.$1/24" dev eth0
    echo "10.0.0.$1 host$1" >> "$work/hosts"
}

start_host() {
    ip netns exec "host$1" ottla start --config "host$1.properties" --data-dir "$work/host$1" --log-level warning \
        --ready-file "$work/host$1.ready" &
    pids[$1]=$!
}

# until_true WHAT COMMAND...: waits for the command to succeed, a minute at most.
until_true() {
    local what=$1 end=$((SECONDS + 60))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || { echo "not within a minute: $what" >&2; exit 1; }
        sleep 0.1
    done
}

read_all() { ottla consume orders --from-beginning --stop-at-end --bootstrap-server $servers | sort -n -u | wc -l; }

all_in_sync() {
    ottla topic describe orders --json --bootstrap-server $servers | python3 -c '
import json, sys
sys.exit(any(len(each["isr"]) < 3 for each in json.load(sys.stdin)["partitions"]))'
}

say "three hosts and a bridge"
mount -t tmpfs tmpfs /run  # where ip keeps the names of namespaces
echo "127.0.0.1 localhost" > "$work/hosts"
ip link set lo up
ip link add bridge type bridge
ip link set bridge up
ip address add 10.0.0.254/24 dev bridge
for n in 1 2 3; do make_host $n; done
mount --bind "$work/hosts" /etc/hosts

say "each directory is formatted, all with the same cluster and voters"
cluster=$(new_id)
voters="1@host1:9093:$(new_id),2@host2:9093:$(new_id),3@host3:9093:$(new_id)"
for n in 1 2 3; do
    ottla format --config "host$n.properties" --data-dir "$work/host$n" --cluster-id "$cluster" \
        --initial-controllers "$voters"
done

say "each host starts its broker"
for n in 1 2 3; do start_host $n; done
for n in 1 2 3; do until_true "host$n serves" test -e "$work/host$n.ready"; done
ottla cluster brokers --bootstrap-server $servers

say "a topic on all three, and a thousand orders"
ottla topic create orders --partitions 6 --bootstrap-server $servers
seq 1 1000 | ottla produce orders --quiet --bootstrap-server $servers

say "host1 is lost: no power, no network; a thousand orders more"
ip link set cable1 down
kill -9 "${pids[1]}"
wait "${pids[1]}" 2> /dev/null || true
seq 1001 2000 | ottla produce orders --quiet --bootstrap-server $servers
ottla cluster brokers --bootstrap-server $servers
found=$(read_all)
[ "$found" = 2000 ] || { echo "2000 orders were acknowledged and $found are there" >&2; exit 1; }

say "host1 comes back and catches up"
rm "$work/host1.ready"
ip link set cable1 up
start_host 1
until_true "host1 serves" test -e "$work/host1.ready"
until_true "all replicas are in sync" all_in_sync
ottla cluster brokers --bootstrap-server $servers

say "all stop"
kill "${pids[@]}"
for n in 1 2 3; do wait "${pids[$n]}"; done
echo "2000 orders acknowledged, 2000 there, with one of three hosts lost meanwhile"
