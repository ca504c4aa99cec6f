import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Copier SERVERS SOURCE TARGET GROUP TRANSACTIONAL-ID PROTOCOL: a group member copies records to the same partitions of
 * another topic, one transaction per poll with one in eight aborted, until standard input ends. Prints a line per step.
 */
public class Copier {
    private static final int ABORTS = 8;
    private static final int FATAL = 3;

    private final KafkaConsumer<String, String> consumer;
    private final KafkaProducer<String, String> producer;
    private final String target;
    private final Random random = new Random();

    private Copier(String[] arguments) {
        target = arguments[2];
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("reconnect.backoff.max.ms", "200");
        properties.put("group.id", arguments[3]);
        properties.put("group.protocol", arguments[5]);
        properties.put("isolation.level", "read_committed");
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("max.poll.records", "40");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        if (arguments[5].equals("classic")) {
            properties.put("session.timeout.ms", "6000");
            properties.put("heartbeat.interval.ms", "500");
        }
        consumer = new KafkaConsumer<>(properties);
        consumer.subscribe(Set.of(arguments[1]));
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("transactional.id", arguments[4]);
        settings.put("transaction.timeout.ms", "20000");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        producer = new KafkaProducer<>(settings);
    }

    public static void main(String[] arguments) {
        StandardInput.watch();
        try {
            new Copier(arguments).run();
        } catch (KafkaException failure) {
            failure.printStackTrace();
            System.exit(FATAL);
        }
        System.exit(0);
    }

    private void run() {
        producer.initTransactions();
        while (!StandardInput.ended()) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            if (!records.isEmpty()) {
                copy(records);
            }
        }
        consumer.close();
        producer.close();
    }

    private void copy(ConsumerRecords<String, String> records) {
        try {
            producer.beginTransaction();
            System.out.println("began");
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(target, record.partition(), record.key(), record.value()));
                offsets.put(
                    new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            producer.flush();
            System.out.println("sent");
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            System.out.println("offsets");
            if (random.nextInt(ABORTS) == 0) {
                abort();
            } else {
                untilTold(producer::commitTransaction);
            }
            System.out.println("ended");
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException fatal) {
            throw fatal;
        } catch (KafkaException failure) {
            if (failure.getCause() instanceof ProducerFencedException) {
                throw failure;
            }
            System.err.println(failure);
            abort();
        }
    }

    private void abort() {
        untilTold(producer::abortTransaction);
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition place : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(place);
            consumer.seek(place, offset == null ? 0 : offset.offset());
        }
    }

    private static void untilTold(Runnable end) {
        while (true) {
            try {
                end.run();
                return;
            } catch (TimeoutException again) {
                System.err.println(again);
            }
        }
    }
}
