import java.io.IOException;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/**
 * WordCount SERVERS SOURCE TARGET APPLICATION DIRECTORY: counts words under exactly_once_v2 and sends every count to the
 * target, until standard input ends. Its topics are SOURCE, a repartition topic, a changelog, and TARGET.
 */
public class WordCount {
    public static void main(String[] arguments) throws IOException {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("application.id", arguments[3]);
        properties.put("state.dir", arguments[4]);
        properties.put("processing.guarantee", "exactly_once_v2");
        properties.put("commit.interval.ms", "50");
        properties.put("statestore.cache.max.bytes", "0");
        properties.put("num.stream.threads", "2");
        properties.put("replication.factor", "1");
        properties.put("consumer.session.timeout.ms", "6000");
        properties.put("consumer.heartbeat.interval.ms", "500");
        properties.put("consumer.auto.offset.reset", "earliest");
        properties.put("producer.transaction.timeout.ms", "10000");
        properties.put("reconnect.backoff.max.ms", "200");
        properties.put("default.key.serde", Serdes.StringSerde.class.getName());
        properties.put("default.value.serde", Serdes.StringSerde.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(arguments[1]);
        lines.flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .mapValues(String::valueOf)
            .to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setUncaughtExceptionHandler(failure -> {
            System.err.println(failure);
            return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse
                .REPLACE_THREAD;
        });
        streams.start();
        while (System.in.read() >= 0) {}
        streams.close();
        System.exit(0);
    }
}
