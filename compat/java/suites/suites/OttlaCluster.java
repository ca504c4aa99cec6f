package suites;

import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.TestKitDefaults;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.fault.FaultHandlerException;

/** A cluster of Ottla processes with the nodes, listeners and settings that a test requests. */
public final class OttlaCluster implements ClusterInstance {
    /** Feature levels below those of Apache Kafka: Ottla has neither share groups nor streams groups. */
    private static final Map<String, Short> LOWER_LEVELS =
            Map.of("share.version", (short) 0, "streams.version", (short) 0);

    private final ClusterConfig config;
    private final Type type;
    private final String clusterId = Uuid.randomUuid().toString();
    private final Map<Integer, Node> nodes = new TreeMap<>();
    private Path home;
    private boolean started;
    private boolean stopped;

    public OttlaCluster(ClusterConfig config, Type type) {
        this.config = config;
        this.type = type;
    }

    /** Creates the directories by Apache Kafka's storage tool, with the feature levels of the test. */
    void format() throws Exception {
        if (home != null) {
            return;
        }
        home = Files.createTempDirectory("ottla-suites-");
        addNodes();
        for (Node node : nodes.values()) {
            Formatter formatter = new Formatter()
                    .setPrintStream(new PrintStream(OutputStream.nullOutputStream()))
                    .setNodeId(node.id)
                    .setClusterId(clusterId)
                    .setDirectories(node.directories)
                    .setMetadataLogDirectory(node.directories.get(0))
                    .setControllerListenerName(config.controllerListenerName().value())
                    .setReleaseVersion(config.metadataVersion())
                    .setUnstableFeatureVersionsEnabled(true);
            LOWER_LEVELS.forEach(formatter::setFeatureLevel);
            for (Map.Entry<Feature, Short> level : config.features().entrySet()) {
                formatter.setFeatureLevel(level.getKey().featureName(), level.getValue());
            }
            formatter.run();
            moveBootstrapRecords(Path.of(node.directories.get(0)));
        }
    }

    /** Moves the initial records to the place where Apache Kafka 4.4 and Ottla keep them (KIP-1170). */
    private static void moveBootstrapRecords(Path directory) throws IOException {
        Path metadataLog = Files.createDirectories(directory.resolve("__cluster_metadata-0"));
        Path records = directory.resolve("bootstrap.checkpoint");
        if (Files.exists(records)) {
            Files.move(records, metadataLog.resolve("00000000000000000000-0000000000.checkpoint"));
        }
    }

    private void addNodes() throws IOException {
        if (config.standalone()) {
            throw new NotApplicable("this harness has no clusters with dynamic voters");
        }
        int controllers = config.numControllers();
        int firstController =
                type == Type.CO_KRAFT ? TestKitDefaults.BROKER_ID_OFFSET : TestKitDefaults.CONTROLLER_ID_OFFSET;
        List<Integer> ports = freePorts(config.numBrokers() + controllers);
        Map<Integer, Integer> brokerPorts = new TreeMap<>();
        Map<Integer, Integer> controllerPorts = new TreeMap<>();
        for (int index = 0; index < config.numBrokers(); index++) {
            brokerPorts.put(TestKitDefaults.BROKER_ID_OFFSET + index, ports.get(index));
        }
        for (int index = 0; index < controllers; index++) {
            controllerPorts.put(firstController + index, ports.get(config.numBrokers() + index));
        }
        String voters = controllerPorts.entrySet().stream()
                .map(entry -> entry.getKey() + "@localhost:" + entry.getValue())
                .collect(Collectors.joining(","));
        NodeSettings settings = new NodeSettings(config, voters);
        for (int id : union(brokerPorts.keySet(), controllerPorts.keySet())) {
            int port = brokerPorts.getOrDefault(id, 0);
            int controllerPort = controllerPorts.getOrDefault(id, 0);
            Path directory = Files.createDirectories(home.resolve("node-" + id));
            List<String> directories = IntStream.range(0, port == 0 ? 1 : config.numDisksPerBroker())
                    .mapToObj(number -> directory.resolve("data-" + number).toString())
                    .collect(Collectors.toList());
            Map<String, String> properties = settings.of(id, port, controllerPort, directories);
            nodes.put(id, new Node(id, port, controllerPort, directory, directories, properties));
        }
    }

    private static List<Integer> union(Set<Integer> first, Set<Integer> second) {
        return Stream.concat(first.stream(), second.stream()).distinct().sorted().collect(Collectors.toList());
    }

    private static List<Integer> freePorts(int count) throws IOException {
        List<ServerSocket> sockets = new ArrayList<>();
        try {
            for (int number = 0; number < count; number++) {
                sockets.add(new ServerSocket(0));
            }
            return sockets.stream().map(ServerSocket::getLocalPort).collect(Collectors.toList());
        } finally {
            sockets.forEach(socket -> Utils.closeQuietly(socket, "socket"));
        }
    }

    static Properties asProperties(Map<String, String> settings) {
        Properties properties = new Properties();
        properties.putAll(settings);
        return properties;
    }

    private Stream<Node> brokerNodes() {
        return nodes.values().stream().filter(node -> node.broker);
    }

    private Node brokerNode(int id) {
        return brokerNodes()
                .filter(node -> node.id == id)
                .findFirst()
                .orElseThrow(() -> new IllegalArgumentException("no broker " + id));
    }

    String logs() {
        return nodes.values().stream().map(Node::log).collect(Collectors.joining("\n"));
    }

    void deleteFiles() {
        try {
            Utils.delete(home == null ? null : home.toFile());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    // ---- Life ----

    @Override
    public void start() {
        if (started) {
            return;
        }
        started = true;
        try {
            format();
            for (Node node : nodes.values()) {
                node.start();
            }
            for (Node node : nodes.values()) {
                node.awaitReady();
            }
            waitForReadyBrokers();
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException("the cluster did not start", error);
        }
    }

    @Override
    public boolean started() {
        return started;
    }

    /** Stops brokers before controllers, which their graceful shutdown needs. Fails if a node ended by itself. */
    @Override
    public void stop() {
        if (stopped) {
            return;
        }
        stopped = true;
        List<Node> order = new ArrayList<>(nodes.values());
        order.sort((first, second) -> Boolean.compare(first.controller, second.controller));
        AssertionError failure = null;
        for (Node node : order) {
            try {
                node.stop();
            } catch (AssertionError error) {
                failure = new AssertionError(error.getMessage() + "\n" + node.log());
            }
        }
        if (failure != null) {
            throw failure;
        }
    }

    @Override
    public boolean stopped() {
        return stopped;
    }

    @Override
    public void shutdownBroker(int id) {
        brokerNode(id).stop();
    }

    @Override
    public void startBroker(int id) {
        try {
            brokerNode(id).start();
            brokerNode(id).awaitReady();
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    // ---- Description ----

    @Override
    public Type type() {
        return type;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public String clusterId() {
        return clusterId;
    }

    @Override
    public Set<Integer> brokerIds() {
        return brokerNodes().map(node -> node.id).collect(Collectors.toSet());
    }

    @Override
    public Set<Integer> controllerIds() {
        return nodes.values().stream().filter(node -> node.controller).map(node -> node.id).collect(Collectors.toSet());
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        Map<Integer, KafkaBroker> handles = new HashMap<>();
        brokerNodes().forEach(node -> handles.put(node.id, BrokerHandle.of(this, node)));
        return handles;
    }

    @Override
    public Map<Integer, ControllerServer> controllers() {
        throw new NotApplicable("ClusterInstance.controllers() returns objects of the controllers' processes");
    }

    @Override
    public List<Authorizer> authorizers() {
        throw new NotApplicable("ClusterInstance.authorizers() returns objects of the nodes' processes");
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    @Override
    public String bootstrapServers() {
        return brokerNodes().map(node -> "localhost:" + node.port).collect(Collectors.joining(","));
    }

    @Override
    public String bootstrapControllers() {
        return controllerBoundPorts().stream().map(port -> "localhost:" + port).collect(Collectors.joining(","));
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return brokerNodes().map(node -> node.port).collect(Collectors.toList());
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        return nodes.values().stream()
                .filter(node -> node.controller)
                .map(node -> node.controllerPort)
                .collect(Collectors.toList());
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        String enabled = config.serverProperties().getOrDefault("group.coordinator.rebalance.protocols", "consumer");
        boolean level = config.features().getOrDefault(Feature.GROUP_VERSION, (short) 1) > 0;
        boolean consumer = level && enabled.toLowerCase().contains("consumer");
        return consumer ? Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER) : Set.of(GroupProtocol.CLASSIC);
    }

    /** A node that ends by itself fails the test at its end, see {@link #stop}. */
    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    // ---- Waits ----

    @Override
    public void waitForReadyBrokers() throws InterruptedException {
        long running = brokerNodes().filter(Node::running).count();
        try (Admin admin = admin()) {
            Wait.until(() -> admin.describeCluster().nodes().get().size() == running, "all brokers are registered");
        }
        ensureConsistentMetadata();
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        if (partitions <= 0) {
            throw new IllegalArgumentException("a topic cannot have " + partitions + " partitions");
        }
        try (Admin admin = admin()) {
            Wait.until(
                    () -> admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size()
                            == partitions,
                    topic + " has " + partitions + " partitions");
        }
        ensureConsistentMetadata();
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        try (Admin admin = admin()) {
            Wait.until(() -> !admin.listTopics().names().get().contains(topic), topic + " is deleted");
        }
        ensureConsistentMetadata();
        Wait.until(
                () -> brokerNodes().filter(Node::running).noneMatch(node -> node.storesTopic(topic)),
                "the directories of " + topic + " are deleted");
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException {
        try (Admin admin = admin()) {
            Wait.until(
                    () -> admin.describeAcls(filter).values().get().stream()
                            .map(AclBinding::entry)
                            .collect(Collectors.toSet())
                            .equals(Set.copyOf(entries)),
                    "the ACLs are " + entries);
        }
        ensureConsistentMetadata();
    }

    /** Waits until all running brokers have fetched the records that the metadata log contains now. */
    @Override
    public void ensureConsistentMetadata() throws InterruptedException {
        Set<Integer> running = brokerNodes().filter(Node::running).map(node -> node.id).collect(Collectors.toSet());
        try (Admin admin = admin()) {
            long[] target = {-1};
            Wait.until(
                    () -> {
                        QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
                        Map<Integer, Long> offsets = new HashMap<>();
                        Stream.concat(quorum.voters().stream(), quorum.observers().stream())
                                .forEach(replica -> offsets.put(replica.replicaId(), replica.logEndOffset()));
                        if (target[0] < 0) {
                            target[0] = offsets.get(quorum.leaderId());
                        }
                        return running.stream().allMatch(id -> offsets.getOrDefault(id, -1L) >= target[0]);
                    },
                    "all brokers have fetched the metadata log");
        }
    }

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers)
            throws InterruptedException {
        ensureConsistentMetadata();
    }
}
