package suites;

import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.LifecycleMethodExecutionExceptionHandler;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;
import org.opentest4j.TestAbortedException;

/** Starts the cluster before a test and stops it afterwards. Failures contain the end of the logs. */
public final class ClusterLifecycle
        implements BeforeEachCallback,
                AfterTestExecutionCallback,
                AfterEachCallback,
                TestExecutionExceptionHandler,
                LifecycleMethodExecutionExceptionHandler {
    private final OttlaCluster cluster;

    public ClusterLifecycle(OttlaCluster cluster) {
        this.cluster = cluster;
    }

    @Override
    public void beforeEach(ExtensionContext context) throws Exception {
        try {
            cluster.format();
            if (cluster.config().isAutoStart()) {
                cluster.start();
            }
        } catch (Exception | Error error) {
            Throwable translated = translated(error);
            if (translated instanceof Error) {
                throw (Error) translated;
            }
            throw (Exception) translated;
        }
    }

    @Override
    public void afterTestExecution(ExtensionContext context) {
        cluster.stop();
    }

    /** Stops a cluster whose test did not start, because a method before it failed. */
    @Override
    public void afterEach(ExtensionContext context) {
        try {
            cluster.stop();
        } finally {
            cluster.deleteFiles();
        }
    }

    @Override
    public void handleTestExecutionException(ExtensionContext context, Throwable error) throws Throwable {
        throw translated(error);
    }

    @Override
    public void handleBeforeEachMethodExecutionException(ExtensionContext context, Throwable error) throws Throwable {
        throw translated(error);
    }

    private Throwable translated(Throwable error) {
        Set<Throwable> seen = Collections.newSetFromMap(new IdentityHashMap<>());
        for (Throwable cause = error; cause != null && seen.add(cause); cause = cause.getCause()) {
            if (cause instanceof NotApplicable) {
                return new TestAbortedException("Not applicable: " + cause.getMessage(), cause);
            }
        }
        error.addSuppressed(new NodeLogs(cluster.logs()));
        return error;
    }

    private static final class NodeLogs extends Exception {
        private static final long serialVersionUID = 1;

        NodeLogs(String logs) {
            super(logs, null, false, false);
        }
    }
}
