import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

/**
 * Transactions SERVERS TOPIC: commits, aborts, empty transactions, offsets, and a zombie with an older epoch. Prints one
 * line per result: first the fenced calls, last the values that a read_committed consumer reads.
 */
public class Transactions {
    private final String servers;
    private final String topic;

    private Transactions(String servers, String topic) {
        this.servers = servers;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        new Transactions(arguments[0], arguments[1]).run();
        System.exit(0);
    }

    private void run() throws Exception {
        KafkaProducer<String, String> producer = open();
        for (String word : List.of("commit", "abort", "abort", "commit", "nothing", "nothing", "commit")) {
            producer.beginTransaction();
            if (!word.equals("nothing")) {
                for (int number = 0; number < 3; number++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, word + number));
                }
            }
            if (word.equals("abort")) {
                producer.abortTransaction();
            } else {
                producer.commitTransaction();
            }
        }
        offsets(producer, 3, false);
        offsets(producer, 5, true);
        offsets(producer, 7, false);
        zombies(producer);
        System.out.println("committed offset " + committedOffset());
        System.out.println("read " + String.join(" ", read()));
    }

    private void offsets(KafkaProducer<String, String> producer, long offset, boolean commit) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(offset));
        producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(topic + "-group"));
        if (commit) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    /** A successor fences a producer with an open transaction, at a send and at a commit; both times it is aborted. */
    private void zombies(KafkaProducer<String, String> first) throws Exception {
        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, 0, null, "zombie")).get();
        KafkaProducer<String, String> second = open();
        second.beginTransaction();
        second.send(new ProducerRecord<>(topic, 0, null, "second")).get();
        System.out.println("commit " + fenced(() -> first.commitTransaction()));
        second.commitTransaction();
        second.beginTransaction();
        second.send(new ProducerRecord<>(topic, 0, null, "zombie")).get();
        KafkaProducer<String, String> third = open();
        third.beginTransaction();
        third.send(new ProducerRecord<>(topic, 0, null, "third")).get();
        System.out.println("send " + fenced(() -> {
            second.send(new ProducerRecord<>(topic, 0, null, "late")).get();
            second.commitTransaction();
        }));
        third.commitTransaction();
    }

    private interface Call {
        void run() throws Exception;
    }

    /** Returns whether a call fails as fenced: a send by its epoch, all other calls by ProducerFencedException. */
    private static String fenced(Call call) throws Exception {
        try {
            call.run();
            return "went well";
        } catch (Exception failure) {
            Throwable cause = failure;
            while (cause != null) {
                if (cause instanceof ProducerFencedException || cause instanceof InvalidProducerEpochException) {
                    return "fenced";
                }
                cause = cause.getCause();
            }
            return failure.toString();
        }
    }

    private KafkaProducer<String, String> open() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("transactional.id", topic + "-id");
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
        producer.initTransactions();
        return producer;
    }

    private KafkaConsumer<String, String> consumer() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("group.id", topic + "-group");
        properties.put("isolation.level", "read_committed");
        properties.put("enable.auto.commit", "false");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return new KafkaConsumer<>(properties);
    }

    private long committedOffset() {
        TopicPartition place = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer()) {
            return consumer.committed(java.util.Set.of(place)).get(place).offset();
        }
    }

    /** Reads up to the last stable offset, which is the log end after all transactions. */
    private List<String> read() {
        TopicPartition place = new TopicPartition(topic, 0);
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place);
            while (consumer.position(place) < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    found.add(record.value());
                }
            }
        }
        return found;
    }
}
