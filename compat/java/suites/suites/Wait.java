package suites;

import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;

/** Waits for conditions that another process makes true. */
final class Wait {
    private static final long PAUSE_MS = 20;

    private Wait() {}

    /** Calls the condition until it returns true; an ExecutionException of a client counts as false. */
    static void until(Callable<Boolean> condition, String description) throws InterruptedException {
        long deadline = System.nanoTime() + Node.TIMEOUT_S * 1_000_000_000L;
        Exception last = null;
        while (System.nanoTime() < deadline) {
            try {
                if (condition.call()) {
                    return;
                }
            } catch (ExecutionException error) {
                last = error;
            } catch (InterruptedException | RuntimeException error) {
                throw error;
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
            Thread.sleep(PAUSE_MS);
        }
        throw new AssertionError("not within " + Node.TIMEOUT_S + " s: " + description, last);
    }
}
