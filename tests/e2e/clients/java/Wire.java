import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** The pipe to the tests: one JSON object per line, both ways. */
final class Wire {
    private final ObjectMapper json = new ObjectMapper();
    private final BufferedReader input;
    private final PrintStream output;

    Wire(InputStream input, PrintStream output) {
        this.input = new BufferedReader(new InputStreamReader(input, StandardCharsets.UTF_8));
        this.output = output;
    }

    /** The next request, or null once the tests' process has closed its end. */
    JsonNode read() throws IOException {
        String line = input.readLine();
        return line == null ? null : json.readTree(line);
    }

    /** Events of several threads are seen in the order in which they were sent. */
    synchronized void send(Map<String, Object> message) {
        try {
            String line = json.writeValueAsString(message) + "\n";
            output.writeBytes(line.getBytes(StandardCharsets.UTF_8));
            output.flush();
        } catch (JsonProcessingException error) {
            throw new UncheckedIOException(error);
        }
    }
}
