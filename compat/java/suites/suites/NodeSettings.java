package suites;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;

/** The server properties of nodes: those of the test, with defaults for listeners and logins. */
final class NodeSettings {
    private static final String CLEANER_BUFFER_BYTES = "2097152";

    private final ClusterConfig config;
    private final String brokerListener;
    private final String controllerListener;
    private final String voters;

    NodeSettings(ClusterConfig config, String voters) {
        this.config = config;
        this.brokerListener = config.brokerListenerName().value();
        this.controllerListener = config.controllerListenerName().value();
        this.voters = voters;
    }

    Map<String, String> of(int id, int port, int controllerPort, List<String> directories) {
        Map<String, String> settings = new TreeMap<>(config.serverProperties());
        String listeners = port == 0 ? "" : brokerListener + "://localhost:" + port;
        if (controllerPort != 0) {
            listeners += (port == 0 ? "" : ",") + controllerListener + "://localhost:" + controllerPort;
        }
        settings.put("node.id", Integer.toString(id));
        settings.put("process.roles", port == 0 ? "controller" : controllerPort == 0 ? "broker" : "broker,controller");
        settings.put("log.dirs", String.join(",", directories));
        settings.put("controller.quorum.voters", voters);
        settings.putIfAbsent("listeners", listeners);
        settings.putIfAbsent("controller.listener.names", controllerListener);
        settings.putIfAbsent("inter.broker.listener.name", brokerListener);
        settings.putIfAbsent(
                "listener.security.protocol.map",
                brokerListener + ":" + config.brokerSecurityProtocol().name + "," + controllerListener + ":"
                        + config.controllerSecurityProtocol().name);
        settings.putIfAbsent("log.cleaner.dedupe.buffer.size", CLEANER_BUFFER_BYTES);
        settings.putIfAbsent("unstable.feature.versions.enable", "true");
        settings.putIfAbsent("unstable.api.versions.enable", "true");
        addLogins(settings, brokerListener, config.brokerSecurityProtocol());
        addLogins(settings, controllerListener, config.controllerSecurityProtocol());
        settings.putAll(config.perServerOverrideProperties().getOrDefault(id, Map.of()));
        settings.forEach(NodeSettings::requireNoPlugin);
        return settings;
    }

    private static void addLogins(Map<String, String> settings, String listener, SecurityProtocol protocol) {
        if (protocol == SecurityProtocol.PLAINTEXT) {
            return;
        }
        if (protocol != SecurityProtocol.SASL_PLAINTEXT) {
            throw new NotApplicable("the test kit of this version has no keys for " + protocol);
        }
        String admin = JaasUtils.KAFKA_PLAIN_ADMIN;
        String secret = JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD;
        settings.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
        settings.putIfAbsent("sasl.mechanism.inter.broker.protocol", "PLAIN");
        settings.putIfAbsent("sasl.mechanism.controller.protocol", "PLAIN");
        settings.putIfAbsent("authorizer.class.name", StandardAuthorizer.class.getName());
        settings.putIfAbsent("allow.everyone.if.no.acl.found", "false");
        settings.putIfAbsent("super.users", "User:" + admin);
        settings.putIfAbsent(
                "listener.name." + listener.toLowerCase() + ".plain.sasl.jaas.config",
                String.format(
                        "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"%s\" "
                                + "password=\"%s\" user_%s=\"%s\" user_%s=\"%s\";",
                        admin, secret, admin, secret, JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD));
    }

    /** A Python process cannot run a Java class that the tests contain. */
    private static void requireNoPlugin(String name, String value) {
        for (String part : value.split(",")) {
            try {
                Class<?> found = Class.forName(part.trim(), false, NodeSettings.class.getClassLoader());
                if (found.getProtectionDomain().getCodeSource().getLocation().getPath().endsWith("-test.jar")) {
                    throw new NotApplicable(name + " is a Java class of the tests, " + part.trim());
                }
            } catch (ClassNotFoundException | LinkageError error) {
                continue;
            }
        }
    }
}
