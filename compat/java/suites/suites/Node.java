package suites;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** One Ottla process: a broker, a controller, or both. A restart keeps ports and directories. */
final class Node {
    static final long TIMEOUT_S = 120;
    private static final int LOG_TAIL_CHARS = 4_000;

    final int id;
    final boolean broker;
    final boolean controller;
    final int port;
    final int controllerPort;
    final List<String> directories;
    private final Path home;
    private final Map<String, String> properties;
    private Process process;

    Node(int id, int port, int controllerPort, Path home, List<String> directories, Map<String, String> properties) {
        this.id = id;
        this.broker = port != 0;
        this.controller = controllerPort != 0;
        this.port = port;
        this.controllerPort = controllerPort;
        this.home = home;
        this.directories = directories;
        this.properties = properties;
    }

    Map<String, String> properties() {
        return properties;
    }

    /** Starts the process. {@link #awaitReady} returns when it serves clients. */
    synchronized void start() throws IOException {
        if (running()) {
            return;
        }
        Files.deleteIfExists(readyFile());
        Files.write(
                home.resolve("server.properties"),
                properties.entrySet().stream()
                        .map(entry -> entry.getKey() + "=" + entry.getValue().replace("\\", "\\\\").replace("\n", "\\\n"))
                        .collect(Collectors.toList()));
        List<String> command = new ArrayList<>(List.of(System.getProperty("suites.python"), "-m", "ottla", "start"));
        command.addAll(List.of("--config", home.resolve("server.properties").toString()));
        command.addAll(List.of("--ready-file", readyFile().toString(), "--stop-with-pipe", "0"));
        process = new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(logFile()))
                .start();
    }

    void awaitReady() throws InterruptedException {
        Wait.until(
                () -> {
                    if (Files.exists(readyFile())) {
                        return true;
                    }
                    requireAlive();
                    return false;
                },
                "node " + id + " is ready");
    }

    private synchronized void requireAlive() {
        if (!running()) {
            int code = process.exitValue();
            process = null;
            throw new IllegalStateException("node " + id + " ended with exit code " + code + " before it was ready");
        }
    }

    /** Stops the process by SIGTERM and waits for its end. Fails after an unexpected end, or an error in its log. */
    synchronized void stop() {
        if (process == null) {
            return;
        }
        boolean endedBefore = !process.isAlive();
        // Process.destroy() would also close the pipe, a second request that ends the controlled shutdown.
        process.toHandle().destroy();
        try {
            if (!process.waitFor(TIMEOUT_S, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
                throw new AssertionError("node " + id + " did not stop within " + TIMEOUT_S + " s");
            }
        } catch (InterruptedException error) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        int code = process.exitValue();
        process = null;
        if (endedBefore) {
            throw new AssertionError("node " + id + " ended during the test with exit code " + code);
        }
        if (log().contains("Traceback (most recent call last)")) {
            throw new AssertionError("node " + id + " logged an unexpected error");
        }
    }

    synchronized boolean running() {
        return process != null && process.isAlive();
    }

    /** Returns the end of the log of all runs. */
    String log() {
        try {
            String text = Files.readAllLines(logFile().toPath()).stream()
                    .filter(line -> !line.contains("loop_lag") && !line.contains(" has no effect: "))
                    .collect(Collectors.joining("\n"));
            return "node " + id + ":\n" + text.substring(Math.max(0, text.length() - LOG_TAIL_CHARS));
        } catch (IOException error) {
            return "node " + id + " has no log";
        }
    }

    /** Returns whether the node stores a partition of the topic, also one whose deletion is pending. */
    boolean storesTopic(String topic) {
        for (String directory : directories) {
            String[] names = new File(directory).list();
            for (String name : names == null ? new String[0] : names) {
                if (name.startsWith(topic + "-") && name.substring(topic.length()).matches("-\\d+(\\..*)?")) {
                    return true;
                }
            }
        }
        return false;
    }

    private Path readyFile() {
        return home.resolve("ready.json");
    }

    private File logFile() {
        return home.resolve("node.log").toFile();
    }
}
