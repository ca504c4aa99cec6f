package org.apache.kafka.common.test.junit;

import java.util.List;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import suites.ClusterLifecycle;
import suites.OttlaCluster;

/**
 * One invocation of a test on a cluster of Ottla processes.
 *
 * <p>Apache Kafka's test kit creates a class of this name for each invocation. This one precedes it on the class path.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String test;
    private final ClusterConfig config;
    private final Type type;

    public RaftClusterInvocationContext(String test, ClusterConfig config, boolean combined) {
        this.test = test;
        this.config = config;
        this.type = combined ? Type.CO_KRAFT : Type.KRAFT;
    }

    @Override
    public String getDisplayName(int index) {
        return test + " [" + index + "] " + type + " " + config.displayTags();
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        OttlaCluster cluster = new OttlaCluster(config, type);
        return List.of(new ClusterLifecycle(cluster), new ClusterInstanceParameterResolver(cluster));
    }
}
