import java.io.IOException;

/** A parent process stops a program by closing its standard input. */
class StandardInput {
    private static volatile boolean ended;

    /** Watches for the end of input on a separate thread. */
    static void watch() {
        Thread waiting = new Thread(StandardInput::waitForEnd);
        waiting.setDaemon(true);
        waiting.start();
    }

    /** Returns whether the input has ended. */
    static boolean ended() {
        return ended;
    }

    private static void waitForEnd() {
        try {
            while (System.in.read() >= 0) {}
        } catch (IOException closed) {
            // equivalent to its end
        }
        ended = true;
    }
}
