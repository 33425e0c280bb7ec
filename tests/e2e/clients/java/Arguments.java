import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;

/** Reads the arguments of a command into what Kafka's client takes. */
final class Arguments {
    private Arguments() {}

    /** The client's settings: the broker's address and whatever else the test chose. */
    static Properties settings(JsonNode arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", text(arguments, "bootstrap"));
        strings(arguments, "settings").forEach(settings::put);
        return settings;
    }

    static String text(JsonNode arguments, String name) {
        return arguments.get(name).asText();
    }

    static List<String> texts(JsonNode arguments, String name) {
        List<String> found = new ArrayList<>();
        arguments.path(name).forEach(each -> found.add(each.asText()));
        return found;
    }

    static Map<String, String> strings(JsonNode arguments, String name) {
        Map<String, String> found = new HashMap<>();
        arguments.path(name).properties().forEach(
                each -> found.put(each.getKey(), each.getValue().asText()));
        return found;
    }

    static TopicPartition place(JsonNode arguments) {
        return new TopicPartition(text(arguments, "topic"), arguments.path("partition").asInt(0));
    }

    /** A map such as {"0": 7}, of the partitions of one topic. */
    static Map<TopicPartition, Long> places(JsonNode arguments, String name) {
        Map<TopicPartition, Long> found = new HashMap<>();
        String topic = text(arguments, "topic");
        arguments.get(name).properties().forEach(each -> {
            int partition = Integer.parseInt(each.getKey());
            found.put(new TopicPartition(topic, partition), each.getValue().asLong());
        });
        return found;
    }
}
