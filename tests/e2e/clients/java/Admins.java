import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;

/** What the admin client does with topics, their records and settings, and the cluster. */
final class Admins {
    interface AdminCommand {
        Object run(Admin admin, JsonNode arguments) throws Exception;
    }

    private Admins() {}

    static void register(Map<String, Main.Command> commands) {
        commands.put("create_topic", with(Admins::createTopic));
        commands.put("describe_topic", with(Admins::describeTopic));
        commands.put("list_topics", with((admin, arguments) -> admin.listTopics().names().get()));
        commands.put("delete_topic", with(Admins::deleteTopic));
        commands.put("create_partitions", with(Admins::createPartitions));
        commands.put("alter_configs", with(Admins::alterConfigs));
        commands.put("describe_configs", with(Admins::describeConfigs));
        commands.put("delete_records", with(Admins::deleteRecords));
        commands.put("list_offsets", with(Admins::listOffsets));
        commands.put("describe_producers", with(Admins::describeProducers));
        commands.put("describe_log_dirs", with(Admins::describeLogDirs));
        commands.put("describe_cluster", with(Admins::describeCluster));
    }

    static Main.Command with(AdminCommand command) {
        return arguments -> {
            try (Admin admin = Admin.create(Arguments.settings(arguments))) {
                return command.run(admin, arguments);
            }
        };
    }

    private static Object createTopic(Admin admin, JsonNode arguments) throws Exception {
        String name = Arguments.text(arguments, "topic");
        int partitions = arguments.get("partitions").asInt();
        NewTopic topic = new NewTopic(name, partitions, replicas(arguments))
                .configs(Arguments.strings(arguments, "configs"));
        var result = admin.createTopics(List.of(topic));
        return Map.of(
                "id", result.topicId(name).get().toString(),
                "partitions", result.numPartitions(name).get(),
                "configs", values(result.config(name).get().entries()));
    }

    private static short replicas(JsonNode arguments) {
        return (short) arguments.path("replicas").asInt(1);
    }

    private static Object describeTopic(Admin admin, JsonNode arguments) throws Exception {
        String name = Arguments.text(arguments, "topic");
        TopicDescription topic =
                admin.describeTopics(Set.of(name)).topicNameValues().get(name).get();
        Map<String, Object> partitions = new TreeMap<>();
        for (TopicPartitionInfo each : topic.partitions()) {
            partitions.put(String.valueOf(each.partition()), Map.of(
                    "leader", each.leader().id(),
                    "replicas", ids(each.replicas()),
                    "isr", ids(each.isr())));
        }
        return Map.of(
                "id", topic.topicId().toString(),
                "internal", topic.isInternal(),
                "partitions", partitions);
    }

    private static Object deleteTopic(Admin admin, JsonNode arguments) throws Exception {
        return admin.deleteTopics(List.of(Arguments.text(arguments, "topic"))).all().get();
    }

    private static Object createPartitions(Admin admin, JsonNode arguments) throws Exception {
        String topic = Arguments.text(arguments, "topic");
        NewPartitions wanted = NewPartitions.increaseTo(arguments.get("partitions").asInt());
        return admin.createPartitions(Map.of(topic, wanted)).all().get();
    }

    /** Changes are triples of operation, name and value. */
    private static Object alterConfigs(Admin admin, JsonNode arguments) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        for (JsonNode change : arguments.get("changes")) {
            operations.add(new AlterConfigOp(
                    new ConfigEntry(change.get(1).asText(), change.get(2).asText(null)),
                    AlterConfigOp.OpType.valueOf(change.get(0).asText())));
        }
        return admin.incrementalAlterConfigs(Map.of(resource(arguments), operations)).all().get();
    }

    private static Object describeConfigs(Admin admin, JsonNode arguments) throws Exception {
        ConfigResource resource = resource(arguments);
        var described = admin.describeConfigs(Set.of(resource)).values().get(resource).get();
        Map<String, Object> found = new HashMap<>();
        for (ConfigEntry entry : described.entries()) {
            found.put(entry.name(), Map.of(
                    "value", String.valueOf(entry.value()),
                    "source", entry.source().name(),
                    "type", entry.type().name(),
                    "read_only", entry.isReadOnly()));
        }
        return found;
    }

    private static ConfigResource resource(JsonNode arguments) {
        ConfigResource.Type type = ConfigResource.Type.valueOf(Arguments.text(arguments, "kind"));
        return new ConfigResource(type, Arguments.text(arguments, "name"));
    }

    private static Object deleteRecords(Admin admin, JsonNode arguments) throws Exception {
        Map<TopicPartition, RecordsToDelete> wanted = new HashMap<>();
        Arguments.places(arguments, "before").forEach(
                (place, offset) -> wanted.put(place, RecordsToDelete.beforeOffset(offset)));
        Map<String, Long> lowWatermarks = new TreeMap<>();
        for (var each : admin.deleteRecords(wanted).lowWatermarks().entrySet()) {
            String partition = String.valueOf(each.getKey().partition());
            lowWatermarks.put(partition, each.getValue().get().lowWatermark());
        }
        return lowWatermarks;
    }

    private static Object listOffsets(Admin admin, JsonNode arguments) throws Exception {
        TopicPartition place = Arguments.place(arguments);
        OffsetSpec spec = switch (Arguments.text(arguments, "at")) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max_timestamp" -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(arguments.get("at").asLong());
        };
        ListOffsetsResult result = admin.listOffsets(Map.of(place, spec));
        var found = result.partitionResult(place).get();
        return List.of(found.offset(), found.timestamp());
    }

    private static Object describeProducers(Admin admin, JsonNode arguments) throws Exception {
        TopicPartition place = Arguments.place(arguments);
        List<Object> found = new ArrayList<>();
        var states = admin.describeProducers(Set.of(place)).partitionResult(place).get();
        for (ProducerState state : states.activeProducers()) {
            found.add(Map.of(
                    "producer_id", state.producerId(),
                    "epoch", state.producerEpoch(),
                    "last_sequence", state.lastSequence(),
                    "last_timestamp", state.lastTimestamp()));
        }
        return found;
    }

    private static Object describeLogDirs(Admin admin, JsonNode arguments) throws Exception {
        Map<String, Object> found = new HashMap<>();
        Map<Integer, Map<String, LogDirDescription>> brokers =
                admin.describeLogDirs(List.of(0)).allDescriptions().get();
        for (var each : brokers.get(0).entrySet()) {
            Map<String, Long> sizes = new TreeMap<>();
            each.getValue().replicaInfos().forEach(
                    (place, replica) -> sizes.put(place.toString(), replica.size()));
            found.put(each.getKey(), Map.of(
                    "sizes", sizes, "usable_bytes", each.getValue().usableBytes().orElse(-1)));
        }
        return found;
    }

    private static Object describeCluster(Admin admin, JsonNode arguments) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        Node node = cluster.nodes().get().iterator().next();
        return Map.of(
                "id", cluster.clusterId().get(),
                "controller", cluster.controller().get().id(),
                "nodes", ids(cluster.nodes().get()),
                "address", node.host() + ":" + node.port());
    }

    private static List<Integer> ids(Iterable<Node> nodes) {
        List<Integer> found = new ArrayList<>();
        nodes.forEach(node -> found.add(node.id()));
        return found;
    }

    private static Map<String, String> values(Iterable<ConfigEntry> entries) {
        Map<String, String> found = new HashMap<>();
        entries.forEach(entry -> found.put(entry.name(), entry.value()));
        return found;
    }
}
