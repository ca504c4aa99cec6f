import java.time.Duration;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Reader SERVERS TOPIC GROUP: a group member that reads committed records and commits its offsets, until standard input
 * ends. Prints a line for each record: partition, offset, value.
 */
public class Reader {
    public static void main(String[] arguments) {
        StandardInput.watch();
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("reconnect.backoff.max.ms", "200");
        properties.put("group.id", arguments[2]);
        properties.put("isolation.level", "read_committed");
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            consumer.subscribe(Set.of(arguments[1]));
            while (!StandardInput.ended()) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<String, String> record : records) {
                    System.out.println(record.partition() + " " + record.offset() + " " + record.value());
                }
                commit(consumer);
            }
        }
        System.exit(0);
    }

    private static void commit(KafkaConsumer<String, String> consumer) {
        try {
            consumer.commitSync();
        } catch (CommitFailedException | RebalanceInProgressException | TimeoutException later) {
            System.err.println(later);
        }
    }
}
