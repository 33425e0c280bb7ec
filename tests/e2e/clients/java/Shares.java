import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of share groups, each in a thread of its own, which tell the tests what they get and what
 * became of it. The value of a record says what to do with it.
 */
final class Shares {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long STOP_TIMEOUT_MS = 60_000;

    private final Wire wire;
    private final Map<String, Member> members = new ConcurrentHashMap<>();

    Shares(Wire wire) {
        this.wire = wire;
    }

    void register(Map<String, Main.Command> commands) {
        commands.put("start_share", this::start);
        commands.put("stop_share", this::stop);
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

    private record Answer(int partition, long offset, int attempt, AcknowledgeType kind) {}

    private final class Member extends Thread {
        private final KafkaShareConsumer<byte[], byte[]> consumer;
        private final String topic;
        private final Set<String> renewed = new HashSet<>();
        private volatile boolean stopping;

        Member(JsonNode arguments) {
            super(Arguments.text(arguments, "member"));
            setDaemon(true);
            topic = Arguments.text(arguments, "topic");
            Properties settings = Arguments.settings(arguments);
            settings.put("share.acknowledgement.mode", "explicit");
            ByteArrayDeserializer plain = new ByteArrayDeserializer();
            consumer = new KafkaShareConsumer<>(settings, plain, plain);
        }

        @Override
        public void run() {
            try (consumer) {
                consumer.subscribe(List.of(topic));
                while (!stopping) {
                    work();
                }
                tell("left", List.of());
            } catch (RuntimeException error) {
                error.printStackTrace();
                tell("failed", List.of(error + ", caused by " + error.getCause()));
            }
        }

        private void work() {
            List<Answer> answers = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                int attempt = record.deliveryCount().orElse((short) 0);
                String place = record.partition() + "-" + record.offset() + "-" + attempt;
                AcknowledgeType kind = chosen(record, attempt, place);
                Answer answer = new Answer(record.partition(), record.offset(), attempt, kind);
                if (!renewed.contains(place)) {
                    tell("delivered", details(answer));
                }
                if (kind == AcknowledgeType.RENEW) {
                    renewed.add(place);
                }
                consumer.acknowledge(record, kind);
                answers.add(answer);
            }
            if (!answers.isEmpty()) {
                answers.forEach(each -> tell("answers", details(each)));
                commit(answers);
            }
        }

        private AcknowledgeType chosen(
                ConsumerRecord<byte[], byte[]> record, int attempt, String place) {
            String value = new String(record.value(), StandardCharsets.UTF_8);
            if (value.startsWith("reject")) {
                return AcknowledgeType.REJECT;
            }
            if (value.startsWith("release") && attempt == 1) {
                return AcknowledgeType.RELEASE;
            }
            boolean isRenewed = value.startsWith("renew") && !renewed.contains(place);
            return isRenewed ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT;
        }

        private void commit(List<Answer> answers) {
            Map<TopicIdPartition, Optional<KafkaException>> outcomes = consumer.commitSync();
            for (Answer each : answers) {
                String error = "";
                for (Map.Entry<TopicIdPartition, Optional<KafkaException>> one :
                        outcomes.entrySet()) {
                    if (one.getKey().partition() == each.partition()) {
                        error = one.getValue().map(Object::toString).orElse("");
                    }
                }
                List<Object> told = new ArrayList<>(details(each));
                told.add(error);
                tell("answered", told);
            }
        }

        private List<Object> details(Answer each) {
            return List.of(each.partition(), each.offset(), each.attempt(), each.kind().toString());
        }

        private void tell(String event, List<?> details) {
            wire.send(Map.of("event", event, "member", getName(), "details", details));
        }
    }
}
