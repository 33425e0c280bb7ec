import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Apache Kafka's own assignors of consumer groups and share groups, without a broker.
 *
 * <p>Topics are numbers, and everything that comes in has an order: what Kafka iterates over is then
 * sorted, except in tables that the assignors make themselves.
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
                Uuid id = idOf(topic.getKey());
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
        PartitionAssignor assignor = switch (spec.get("assignor").asText()) {
            case "uniform" -> new UniformAssignor();
            case "range" -> new RangeAssignor();
            default -> new SimpleAssignor();
        };
        boolean isHomogeneous = spec.get("homogeneous").asBoolean();
        SubscriptionType type =
                isHomogeneous ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        Map<String, Map<String, List<Integer>>> answer = new HashMap<>();
        GroupSpec group = spec.has("assignable")
                ? new GroupSpecImpl(
                        members, type, owners, Optional.of(partitionsOf(spec.get("assignable"))))
                : new GroupSpecImpl(members, type, owners);
        assignor.assign(group, new Topics(spec))
                .members()
                .forEach((id, member) -> answer.put(id, plain(member.partitions())));
        return answer;
    }

    private static Uuid idOf(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    private static Map<Uuid, Set<Integer>> partitionsOf(JsonNode topics) {
        Map<Uuid, Set<Integer>> partitions = new HashMap<>();
        topics.properties().forEach(topic -> {
            Set<Integer> numbers = new HashSet<>();
            topic.getValue().forEach(partition -> numbers.add(partition.asInt()));
            partitions.put(idOf(topic.getKey()), numbers);
        });
        return partitions;
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
