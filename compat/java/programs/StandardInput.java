import java.io.IOException;

/** Whoever started a program ends it by ending its standard input. */
class StandardInput {
    private static volatile boolean ended;

    /** Watches for the end, beside whatever else runs. */
    static void watch() {
        Thread waiting = new Thread(StandardInput::waitForEnd);
        waiting.setDaemon(true);
        waiting.start();
    }

    /** Whether it has come. */
    static boolean ended() {
        return ended;
    }

    private static void waitForEnd() {
        try {
            while (System.in.read() >= 0) {}
        } catch (IOException closed) {
            // as good as its end
        }
        ended = true;
    }
}
