package suites;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.metadata.BrokerState;

/** Answers the methods of a KafkaBroker that concern its life and settings. The others are not applicable. */
final class BrokerHandle implements InvocationHandler {
    private final OttlaCluster cluster;
    private final Node node;

    private BrokerHandle(OttlaCluster cluster, Node node) {
        this.cluster = cluster;
        this.node = node;
    }

    static KafkaBroker of(OttlaCluster cluster, Node node) {
        Class<?>[] interfaces = {KafkaBroker.class};
        return (KafkaBroker)
                Proxy.newProxyInstance(KafkaBroker.class.getClassLoader(), interfaces, new BrokerHandle(cluster, node));
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Exception {
        switch (method.getName()) {
            case "startup":
                cluster.startBroker(node.id);
                return null;
            case "shutdown":
            case "awaitShutdown":
                cluster.shutdownBroker(node.id);
                return null;
            case "isShutdown":
                return !node.running();
            case "brokerState":
                return node.running() ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
            case "boundPort":
                return node.port;
            case "clusterId":
                return cluster.clusterId();
            case "config":
                return KafkaConfig.fromProps(OttlaCluster.asProperties(node.properties()), false);
            case "hashCode":
                return System.identityHashCode(proxy);
            case "equals":
                return proxy == arguments[0];
            case "toString":
                return "Ottla broker " + node.id;
            default:
                throw new NotApplicable("KafkaBroker." + method.getName() + "() returns an object of the broker's process");
        }
    }
}
