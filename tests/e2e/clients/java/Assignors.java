import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Apache Kafka's own assignors of the new consumer protocol, without a broker.
 *
 * <p>Topics are small numbers, and everything has an order: what Kafka iterates over is then sorted.
 */
final class Assignors {
    private Assignors() {}

    static void register(Map<String, Main.Command> commands) {
        commands.put("assign", arguments -> {
            List<Object> answers = new ArrayList<>();
            arguments.get("specs").forEach(spec -> answers.add(assign(spec)));
            return answers;
        });
    }

    private static Map<String, Map<String, List<Integer>>> assign(JsonNode spec) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new TreeMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        spec.get("members").properties().forEach(each -> {
            JsonNode member = each.getValue();
            Set<Uuid> topics = new TreeSet<>();
            member.get("topics").forEach(topic -> topics.add(new Uuid(0, topic.asLong())));
            Map<Uuid, Set<Integer>> assigned = new TreeMap<>();
            member.get("assigned").properties().forEach(topic -> {
                Uuid id = new Uuid(0, Long.parseLong(topic.getKey()));
                Set<Integer> partitions = new TreeSet<>();
                topic.getValue().forEach(partition -> {
                    partitions.add(partition.asInt());
                    owners.computeIfAbsent(id, none -> new HashMap<>())
                            .put(partition.asInt(), each.getKey());
                });
                assigned.put(id, partitions);
            });
            members.put(each.getKey(), new MemberSubscriptionAndAssignmentImpl(
                    Optional.empty(),
                    Optional.ofNullable(member.get("instance").textValue()),
                    topics,
                    new Assignment(Collections.unmodifiableMap(assigned))));
        });
        boolean isUniform = spec.get("assignor").asText().equals("uniform");
        ConsumerGroupPartitionAssignor assignor =
                isUniform ? new UniformAssignor() : new RangeAssignor();
        boolean isHomogeneous = spec.get("homogeneous").asBoolean();
        SubscriptionType type =
                isHomogeneous ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        Map<String, Map<String, List<Integer>>> answer = new HashMap<>();
        assignor.assign(new GroupSpecImpl(members, type, owners), new Topics(spec))
                .members()
                .forEach((id, member) -> answer.put(id, plain(member.partitions())));
        return answer;
    }

    private static Map<String, List<Integer>> plain(Map<Uuid, Set<Integer>> assigned) {
        Map<String, List<Integer>> plain = new HashMap<>();
        assigned.forEach((id, partitions) -> plain.put(
                String.valueOf(id.getLeastSignificantBits()),
                new ArrayList<>(new TreeSet<>(partitions))));
        return plain;
    }

    private record Topics(JsonNode spec) implements SubscribedTopicDescriber {
        @Override
        public int numPartitions(Uuid id) {
            String name = String.valueOf(id.getLeastSignificantBits());
            return spec.get("partitions").path(name).asInt(-1);
        }

        @Override
        public Set<String> racksForPartition(Uuid id, int partition) {
            return Set.of();
        }
    }
}
