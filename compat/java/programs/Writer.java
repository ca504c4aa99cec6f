import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Writer SERVERS TOPIC PARTITIONS NAME [TRANSACTIONAL-ID]: an idempotent producer, with an id in transactions of three
 * records, sends NAME-0, NAME-1 and so on until standard input ends. Prints each acknowledged or committed value. An
 * error that the application would have to handle ends it.
 */
public class Writer {
    private static final int IN_A_TRANSACTION = 3;
    private static final int FAILED = 3;
    private static final long PAUSE_MS = 4;
    private static volatile Exception failure;

    private final KafkaProducer<String, String> producer;
    private final String topic;
    private final int partitions;
    private final String name;
    private int number;

    private Writer(String[] arguments) {
        topic = arguments[1];
        partitions = Integer.parseInt(arguments[2]);
        name = arguments[3];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("acks", "all");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("delivery.timeout.ms", "300000");
        settings.put("max.block.ms", "300000");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        if (arguments.length > 4) {
            settings.put("transactional.id", arguments[4]);
            settings.put("transaction.timeout.ms", "300000");
        }
        producer = new KafkaProducer<>(settings);
        if (arguments.length > 4) {
            producer.initTransactions();
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        StandardInput.watch();
        Writer writer = new Writer(arguments);
        while (!StandardInput.ended() && failure == null) {
            if (arguments.length > 4) {
                writer.transaction();
            } else {
                writer.send(null);
            }
            Thread.sleep(PAUSE_MS);
        }
        writer.producer.close();
        if (failure != null) {
            failure.printStackTrace();
            System.exit(FAILED);
        }
        System.exit(0);
    }

    private void send(List<String> values) {
        String value = name + "-" + number;
        producer.send(new ProducerRecord<>(topic, number % partitions, null, value), (metadata, error) -> {
            if (error != null) {
                failure = error;
            } else if (values == null) {
                System.out.println(value);
            }
        });
        if (values != null) {
            values.add(value);
        }
        number++;
    }

    private void transaction() {
        List<String> values = new ArrayList<>();
        producer.beginTransaction();
        for (int count = 0; count < IN_A_TRANSACTION; count++) {
            send(values);
        }
        while (true) {
            try {
                producer.commitTransaction();
                break;
            } catch (TimeoutException again) {
                System.err.println(again);
            }
        }
        values.forEach(System.out::println);
    }
}
