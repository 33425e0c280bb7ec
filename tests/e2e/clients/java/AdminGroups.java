import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** What the admin client does with consumer groups and their committed offsets. */
final class AdminGroups {
    private AdminGroups() {}

    static void register(Map<String, Main.Command> commands) {
        commands.put("list_groups", Admins.with(AdminGroups::list));
        commands.put("describe_group", Admins.with(AdminGroups::describe));
        commands.put("delete_group", Admins.with(AdminGroups::delete));
        commands.put("remove_member", Admins.with(AdminGroups::removeMember));
        commands.put("alter_group_offsets", Admins.with(AdminGroups::alterOffsets));
        commands.put("list_group_offsets", Admins.with(AdminGroups::listOffsets));
        commands.put("delete_group_offsets", Admins.with(AdminGroups::deleteOffsets));
    }

    private static Object list(Admin admin, JsonNode arguments) throws Exception {
        Map<String, Object> found = new HashMap<>();
        for (GroupListing group : admin.listGroups().all().get()) {
            found.put(group.groupId(), Map.of(
                    "type", group.type().map(Object::toString).orElse("none"),
                    "protocol", group.protocol(),
                    "state", group.groupState().map(Object::toString).orElse("none")));
        }
        return found;
    }

    private static Object describe(Admin admin, JsonNode arguments) throws Exception {
        String group = Arguments.text(arguments, "group");
        ConsumerGroupDescription described =
                admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get();
        List<Object> members = new ArrayList<>();
        for (MemberDescription member : described.members()) {
            members.add(Map.of(
                    "instance", member.groupInstanceId().orElse(""),
                    "client", member.clientId(),
                    "partitions", partitions(member.assignment().topicPartitions())));
        }
        return Map.of(
                "state", described.groupState().toString(),
                "assignor", described.partitionAssignor(),
                "coordinator", described.coordinator().id(),
                "members", members);
    }

    private static Object delete(Admin admin, JsonNode arguments) throws Exception {
        List<String> groups = List.of(Arguments.text(arguments, "group"));
        return admin.deleteConsumerGroups(groups).all().get();
    }

    private static Object removeMember(Admin admin, JsonNode arguments) throws Exception {
        var member = new MemberToRemove(Arguments.text(arguments, "instance"));
        var options = new RemoveMembersFromConsumerGroupOptions(List.of(member));
        String group = Arguments.text(arguments, "group");
        return admin.removeMembersFromConsumerGroup(group, options).all().get();
    }

    private static Object alterOffsets(Admin admin, JsonNode arguments) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
        Arguments.places(arguments, "offsets").forEach(
                (place, offset) -> wanted.put(place, new OffsetAndMetadata(offset, "by hand")));
        String group = Arguments.text(arguments, "group");
        return admin.alterConsumerGroupOffsets(group, wanted).all().get();
    }

    private static Object listOffsets(Admin admin, JsonNode arguments) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        var result = admin.listConsumerGroupOffsets(Arguments.text(arguments, "group"));
        result.partitionsToOffsetAndMetadata().get().forEach((place, committed) ->
                found.put(place.toString(), List.of(committed.offset(), committed.metadata())));
        return found;
    }

    private static Object deleteOffsets(Admin admin, JsonNode arguments) throws Exception {
        String group = Arguments.text(arguments, "group");
        Set<TopicPartition> places = Set.of(Arguments.place(arguments));
        return admin.deleteConsumerGroupOffsets(group, places).all().get();
    }

    private static List<Integer> partitions(Set<TopicPartition> places) {
        return places.stream().map(TopicPartition::partition).sorted().toList();
    }
}
