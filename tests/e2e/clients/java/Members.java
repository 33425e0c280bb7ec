import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

/** Members of groups, each in a thread of its own, which tell the tests what they own and read. */
final class Members {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long STOP_TIMEOUT_MS = 60_000;

    private final Wire wire;
    private final Map<String, Member> members = new ConcurrentHashMap<>();

    Members(Wire wire) {
        this.wire = wire;
    }

    void register(Map<String, Main.Command> commands) {
        commands.put("start_member", this::start);
        commands.put("stop_member", this::stop);
    }

    private Object start(JsonNode arguments) {
        Member member = new Member(arguments);
        members.put(member.getName(), member);
        member.start();
        return null;
    }

    private Object stop(JsonNode arguments) throws InterruptedException {
        Member member = members.remove(Arguments.text(arguments, "member"));
        member.stopping = true;
        member.join(STOP_TIMEOUT_MS);
        return !member.isAlive();
    }

    private final class Member extends Thread implements ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final String topic;
        private volatile boolean stopping;

        Member(JsonNode arguments) {
            super(Arguments.text(arguments, "member"));
            setDaemon(true);
            topic = Arguments.text(arguments, "topic");
            Properties settings = Arguments.settings(arguments);
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", "false");
            consumer = Records.consumer(settings);
        }

        @Override
        public void run() {
            try (consumer) {
                consumer.subscribe(List.of(topic), this);
                while (!stopping) {
                    readSome();
                }
                tell("left", List.of());
            } catch (RuntimeException error) {
                // The stack trace, with its causes, is in what a failed call shows of the JVM.
                error.printStackTrace();
                tell("failed", List.of(error + ", caused by " + error.getCause()));
            }
        }

        private void readSome() {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            for (ConsumerRecord<byte[], byte[]> record : records) {
                tell("read", List.of(record.partition(), record.offset()));
            }
            if (!records.isEmpty()) {
                commit();
            }
        }

        /** A rebalance puts a commit off, to the next read or to the loss of the partitions. */
        private void commit() {
            try {
                consumer.commitSync();
                tell("committed", List.of());
            } catch (RebalanceInProgressException postponed) {
                tell("postponed", List.of());
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {
            tell("assigned", partitions(places));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            consumer.commitSync();
            tell("revoked", partitions(places));
        }

        private List<Integer> partitions(Collection<TopicPartition> places) {
            return places.stream().map(TopicPartition::partition).sorted().toList();
        }

        private void tell(String event, List<?> details) {
            wire.send(Map.of("event", event, "member", getName(), "details", details));
        }
    }
}
