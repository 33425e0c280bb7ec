import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main classes of Kafka's command-line tools in this JVM, one at a time.
 *
 * <p>They print to the standard output, which Scala's console keeps from its first use on. So it is
 * replaced once, before any tool is loaded, and emptied for each tool.
 */
final class Tools {
    private final ByteArrayOutputStream printed = new ByteArrayOutputStream();

    private Integer exitCode;

    /** Ends a tool that exits instead of returning. */
    private static final class Exited extends RuntimeException {
        private static final long serialVersionUID = 1;

        Exited() {
            super("exited", null, false, false);
        }
    }

    Tools() {
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        Exit.Procedure instead = (code, message) -> {
            // Some tools catch everything, this too, and exit again: the first code is their own.
            exitCode = exitCode == null ? code : exitCode;
            throw new Exited();
        };
        Exit.setExitProcedure(instead);
        Exit.setHaltProcedure(instead);
    }

    void register(Map<String, Main.Command> commands) {
        commands.put("tool", this::run);
    }

    private synchronized Object run(JsonNode arguments) throws ReflectiveOperationException {
        Class<?> tool = Class.forName(Arguments.text(arguments, "main"));
        Method main = tool.getMethod("main", String[].class);
        String[] words = Arguments.texts(arguments, "words").toArray(new String[0]);
        System.setIn(new ByteArrayInputStream(
                arguments.path("stdin").asText("").getBytes(StandardCharsets.UTF_8)));
        printed.reset();
        exitCode = null;
        try {
            main.invoke(null, (Object) words);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Exited)) {
                throw error;
            }
        }
        String output = printed.toString(StandardCharsets.UTF_8);
        return Map.of("code", exitCode == null ? 0 : exitCode, "printed", output);
    }
}
