import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.InvocationTargetException;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Serves the tests' commands with Apache Kafka's own client and tools.
 *
 * <p>One JVM serves many tests, because its start is the dear part. Each command has a thread of
 * its own, so that one that hangs fails its own test only.
 */
public final class Main {
    interface Command {
        Object run(JsonNode arguments) throws Exception;
    }

    private final Wire wire = new Wire(System.in, System.out);
    private final Map<String, Command> commands = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        new Main().serve();
        // The tests' process has gone; whatever still runs here has nobody to report to.
        Runtime.getRuntime().halt(0);
    }

    private Main() {
        Records.register(commands);
        Admins.register(commands);
        AdminGroups.register(commands);
        Assignors.register(commands);
        new Members(wire).register(commands);
        new Shares(wire).register(commands);
        new Tools().register(commands);
        commands.put("version", arguments -> AppInfoParser.getVersion());
    }

    private void serve() throws Exception {
        JsonNode request;
        while ((request = wire.read()) != null) {
            JsonNode accepted = request;
            Thread thread = new Thread(() -> answer(accepted));
            thread.setDaemon(true);
            thread.start();
        }
    }

    private void answer(JsonNode request) {
        Map<String, Object> answer = new HashMap<>();
        answer.put("id", request.get("id").asLong());
        try {
            String name = request.get("command").asText();
            answer.put("result", commands.get(name).run(request.get("arguments")));
        } catch (Throwable error) {
            answer.put("error", describe(error));
        }
        wire.send(answer);
    }

    /** Futures and reflection wrap what went wrong; the tests want the error that Kafka chose. */
    static Map<String, Object> describe(Throwable error) {
        boolean isWrapper =
                error instanceof ExecutionException || error instanceof InvocationTargetException;
        Throwable cause = isWrapper ? error.getCause() : error;
        String message = String.valueOf(cause.getMessage());
        return Map.of("type", cause.getClass().getSimpleName(), "message", message);
    }
}
