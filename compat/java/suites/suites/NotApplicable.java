package suites;

/**
 * A test needs an object inside a broker's process. {@link ClusterLifecycle} reports such a test as skipped.
 *
 * <p>An Error, because the wait loops of the tests retry on exceptions.
 */
public final class NotApplicable extends Error {
    private static final long serialVersionUID = 1;

    NotApplicable(String reason) {
        super(reason);
    }
}
