import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;

/**
 * Runs Apache Kafka's tools in sequence in one JVM, by their main methods, on request of ToolServer in tools.py. A frame
 * is the number of its parts, then each part with its length before it. A request consists of the class, the arguments
 * and the standard input; a response consists of the exit code, standard output and standard error.
 *
 * Each run loads the classes of the tools again, because their static fields contain counters. A call to exit becomes an
 * error that ends the main method; the tool's shutdown hooks then run, as at the end of a process.
 */
public final class Tools {
    /** The classes by which older and newer tools exit; the class path of older tools contains both. */
    private static final List<String> EXIT_CLASSES =
        List.of("org.apache.kafka.common.utils.Exit", "org.apache.kafka.common.utils.internals.Exit");

    private static final class Ended extends Error {
        Ended() {
            super("the tool asked for the process to end", null, false, false);
        }
    }

    /** Streams that are installed once, because Scala's Console retains those of its first use. */
    private static final class Kept extends OutputStream {
        private ByteArrayOutputStream bytes = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int value) {
            bytes.write(value);
        }

        @Override
        public synchronized void write(byte[] data, int from, int length) {
            bytes.write(data, from, length);
        }

        synchronized byte[] taken() {
            byte[] result = bytes.toByteArray();
            bytes = new ByteArrayOutputStream();
            return result;
        }
    }

    private static final class Given extends InputStream {
        private volatile ByteArrayInputStream bytes = new ByteArrayInputStream(new byte[0]);

        @Override
        public int read() {
            return bytes.read();
        }

        @Override
        public int read(byte[] data, int from, int length) {
            return bytes.read(data, from, length);
        }

        @Override
        public int available() {
            return bytes.available();
        }
    }

    /** Loads the classes of tools again for each run; all runs share the classes of clients and broker. */
    private static final class Fresh extends ClassLoader {
        Fresh(ClassLoader parent) {
            super(parent);
        }

        private static boolean isOfTools(String name) {
            boolean shared = name.startsWith("org.apache.kafka.tools.api.");
            return !shared && (name.startsWith("org.apache.kafka.tools.") || name.startsWith("kafka.admin."));
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!isOfTools(name)) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> found = findLoadedClass(name);
                return found == null ? defined(name) : found;
            }
        }

        private Class<?> defined(String name) throws ClassNotFoundException {
            try (InputStream stream = getResourceAsStream(name.replace('.', '/') + ".class")) {
                if (stream == null) {
                    throw new ClassNotFoundException(name);
                }
                byte[] bytes = stream.readAllBytes();
                return defineClass(name, bytes, 0, bytes.length);
            } catch (IOException error) {
                throw new ClassNotFoundException(name, error);
            }
        }
    }

    private final Kept output = new Kept();
    private final Kept errors = new Kept();
    private final Given given = new Given();
    private final List<Runnable> hooks = new ArrayList<>();
    private Integer code;

    private Tools() throws ReflectiveOperationException {
        System.setOut(new PrintStream(output, true));
        System.setErr(new PrintStream(errors, true));
        System.setIn(given);
        for (String place : EXIT_CLASSES) {
            Class<?> exit;
            try {
                exit = Class.forName(place);
            } catch (ClassNotFoundException error) {
                continue;
            }
            set(exit, "setExitProcedure", arguments -> end((Integer) arguments[0]));
            set(exit, "setHaltProcedure", arguments -> end((Integer) arguments[0]));
            set(exit, "setShutdownHookAdder", arguments -> add((Runnable) arguments[1]));
        }
    }

    /** Calls the setter with an implementation of its one argument, an interface of one method. */
    private static void set(Class<?> exit, String setter, Consumer<Object[]> action) throws ReflectiveOperationException {
        for (Method method : exit.getMethods()) {
            if (method.getName().equals(setter)) {
                Class<?> type = method.getParameterTypes()[0];
                method.invoke(null, Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (self, called, arguments) -> {
                    action.accept(arguments);
                    return null;
                }));
                return;
            }
        }
        throw new NoSuchMethodException(exit + "." + setter);
    }

    private void add(Runnable hook) {
        synchronized (hooks) {
            hooks.add(hook);
        }
    }

    private synchronized void end(int status) {
        if (code == null) {
            code = status;
        }
        throw new Ended();
    }

    private synchronized int ended(int otherwise) {
        int found = code == null ? otherwise : code;
        code = null;
        return found;
    }

    private int run(String name, String[] arguments) throws ReflectiveOperationException {
        int otherwise = 0;
        ClassLoader loader = new Fresh(Tools.class.getClassLoader());
        Thread.currentThread().setContextClassLoader(loader);
        try {
            loader.loadClass(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                error.getCause().printStackTrace();
                otherwise = 1;
            }
        }
        List<Runnable> last;
        synchronized (hooks) {
            last = new ArrayList<>(hooks);
            hooks.clear();
        }
        for (Runnable hook : last) {
            hook.run();
        }
        return ended(otherwise);
    }

    private byte[][] answer(byte[][] request) throws ReflectiveOperationException {
        String[] words = new String[request.length - 1];
        for (int index = 0; index < words.length; index++) {
            words[index] = new String(request[index], StandardCharsets.UTF_8);
        }
        given.bytes = new ByteArrayInputStream(request[words.length]);
        int status = run(words[0], Arrays.copyOfRange(words, 1, words.length));
        return new byte[][] {Integer.toString(status).getBytes(StandardCharsets.UTF_8), output.taken(), errors.taken()};
    }

    private void serve(DataInputStream requests, DataOutputStream answers) throws Exception {
        while (true) {
            byte[][] request = new byte[requests.readInt()][];
            for (int index = 0; index < request.length; index++) {
                request[index] = new byte[requests.readInt()];
                requests.readFully(request[index]);
            }
            for (byte[] part : answer(request)) {
                answers.writeInt(part.length);
                answers.write(part);
            }
            answers.flush();
        }
    }

    public static void main(String[] none) {
        DataInputStream requests = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream answers = new DataOutputStream(new BufferedOutputStream(System.out));
        PrintStream log = System.err;
        try {
            new Tools().serve(requests, answers);
        } catch (EOFException error) {
            Runtime.getRuntime().halt(0); // also if a tool left threads running
        } catch (Exception error) {
            error.printStackTrace(log);
            Runtime.getRuntime().halt(1);
        }
    }
}
