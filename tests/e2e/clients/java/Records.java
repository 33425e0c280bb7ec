import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Writes and reads records. Bytes travel as base64, and null stays null. */
final class Records {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long READ_TIMEOUT_MS = 60_000;

    private Records() {}

    static void register(Map<String, Main.Command> commands) {
        commands.put("produce", Records::produce);
        commands.put("consume", Records::consume);
        commands.put("subscribe", Records::subscribe);
        commands.put("begin_transaction", Records::beginTransaction);
    }

    static KafkaConsumer<byte[], byte[]> consumer(Properties settings) {
        settings.putIfAbsent("auto.offset.reset", "none");
        return new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static KafkaProducer<byte[], byte[]> producer(JsonNode arguments) {
        Properties settings = Arguments.settings(arguments);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static Object produce(JsonNode arguments) throws Exception {
        List<Long> offsets = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(arguments)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode message : arguments.get("messages")) {
                sent.add(producer.send(record(Arguments.place(arguments), message)));
                Thread.sleep(arguments.path("pause_ms").asLong(0));
            }
            producer.flush();
            for (Future<RecordMetadata> each : sent) {
                offsets.add(each.get().offset());
            }
        }
        return offsets;
    }

    private static ProducerRecord<byte[], byte[]> record(TopicPartition place, JsonNode message) {
        JsonNode timestamp = message.get("timestamp_ms");
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                place.topic(),
                place.partition(),
                timestamp.isNull() ? null : timestamp.asLong(),
                decode(message.get("key")),
                decode(message.get("value")));
        for (JsonNode header : message.get("headers")) {
            record.headers().add(header.get(0).asText(), decode(header.get(1)));
        }
        return record;
    }

    private static Object consume(JsonNode arguments) {
        TopicPartition place = Arguments.place(arguments);
        List<Object> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Arguments.settings(arguments))) {
            consumer.assign(List.of(place));
            consumer.seek(place, startOffset(consumer, place, arguments));
            long deadline = System.currentTimeMillis() + READ_TIMEOUT_MS;
            int count = arguments.get("count").asInt();
            while (found.size() < count && System.currentTimeMillis() < deadline) {
                consumer.poll(POLL).forEach(record -> found.add(message(record)));
            }
        }
        return found;
    }

    /** A test names either an offset or a time, for which the broker is asked. */
    private static long startOffset(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition place, JsonNode arguments) {
        if (!arguments.has("from_ms")) {
            return arguments.path("offset").asLong(0);
        }
        Map<TopicPartition, OffsetAndTimestamp> found =
                consumer.offsetsForTimes(Map.of(place, arguments.get("from_ms").asLong()));
        return found.get(place).offset();
    }

    /** Joins a group and polls until its partitions come or the client gives up. */
    private static Object subscribe(JsonNode arguments) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Arguments.settings(arguments))) {
            consumer.subscribe(List.of(Arguments.text(arguments, "topic")));
            long deadline = System.currentTimeMillis() + READ_TIMEOUT_MS;
            while (consumer.assignment().isEmpty() && System.currentTimeMillis() < deadline) {
                consumer.poll(POLL);
            }
            return consumer.assignment().size();
        }
    }

    /** Reports what each step of a transaction's beginning ran into. */
    private static Object beginTransaction(JsonNode arguments) {
        List<Object> outcomes = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(arguments)) {
            for (Runnable step : List.<Runnable>of(
                    producer::initTransactions, producer::beginTransaction)) {
                try {
                    step.run();
                    outcomes.add(Map.of("type", "done", "message", ""));
                } catch (RuntimeException error) {
                    outcomes.add(Main.describe(error));
                }
            }
        }
        return outcomes;
    }

    private static Map<String, Object> message(ConsumerRecord<byte[], byte[]> record) {
        Map<String, Object> message = new HashMap<>();
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(encode(header.value()));
            headers.add(pair);
        }
        message.put("key", encode(record.key()));
        message.put("value", encode(record.value()));
        message.put("headers", headers);
        message.put("timestamp_ms", record.timestamp());
        message.put("timestamp_type", record.timestampType().id);
        message.put("offset", record.offset());
        return message;
    }

    private static byte[] decode(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String encode(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
