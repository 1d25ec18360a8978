import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** An API in Java, limited by Drossel: java Ask.java */
public class Ask {
    static final URI DROSSEL = URI.create(env("DROSSEL", "http://127.0.0.1:7080") + "/v1/decide");
    static final Duration DEADLINE = Duration.ofMillis(Long.parseLong(env("DEADLINE", "25")));

    /** Keeps its connections. */
    static final HttpClient CLIENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(DEADLINE).build();

    /** What Drossel decided, ready to be sent. */
    record Decision(boolean allowed, int status, Map<String, String> headers, String body) {
        /** When Drossel itself does not answer. */
        static final Decision WITHOUT = new Decision(true, 200, Map.of(), "");
    }

    /** Asks Drossel, which answers with status 200 whether the request is allowed or denied. */
    static Decision decide(String method, String path, String ip, String user) throws InterruptedException {
        String question = "{\"method\":%s,\"path\":%s,\"ip\":%s,\"attributes\":{\"user\":%s}}"
                .formatted(quote(method), quote(path), quote(ip), quote(user));
        HttpRequest request = HttpRequest.newBuilder(DROSSEL).timeout(DEADLINE)
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(question)).build();
        try {
            HttpResponse<String> response = CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
            if (response.statusCode() == 200) {
                return read(response.body());
            }
            System.err.println("drossel: " + response.body()); // a mistake in the question
        } catch (IOException e) {
            System.err.println("drossel: " + e);
        }
        return Decision.WITHOUT;
    }

    static void serve(HttpExchange exchange) throws IOException {
        try (exchange) {
            Decision decision = decide(exchange.getRequestMethod(), exchange.getRequestURI().toString(),
                    exchange.getRemoteAddress().getAddress().getHostAddress(),
                    // Yours: the user of a session that you have checked.
                    Optional.ofNullable(exchange.getRequestHeaders().getFirst("X-User")).orElse(""));
            decision.headers().forEach(exchange.getResponseHeaders()::set);
            byte[] body = (decision.allowed() ? "{\"ordered\":true}" : decision.body()).getBytes("UTF-8");
            exchange.sendResponseHeaders(decision.allowed() ? 201 : decision.status(), body.length);
            exchange.getResponseBody().write(body);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    public static void main(String[] args) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(env("PORT", "3000"))), 0);
        server.setExecutor(Executors.newFixedThreadPool(16));
        server.createContext("/", Ask::serve);
        server.start();
        System.out.println("listening on port " + server.getAddress().getPort());
    }

    static String env(String name, String otherwise) {
        return Optional.ofNullable(System.getenv(name)).orElse(otherwise);
    }

    // What follows reads JSON, of which Java's own library knows nothing. Take your JSON library instead.

    /** Values of JSON as far as a decision has them; a group is an object or array in one piece. */
    static final Pattern TOKEN = Pattern.compile("\"(?:[^\"\\\\]|\\\\.)*\"|[{}\\[\\]:,]|[^\\s{}\\[\\]:,\"]+");

    static Decision read(String json) {
        Map<String, String> fields = fields(json);
        Map<String, String> headers = new HashMap<>();
        fields(fields.get("headers")).forEach((name, value) -> headers.put(name, unquote(value)));
        return new Decision(fields.get("allowed").equals("true"), Integer.parseInt(fields.get("status")), headers, fields.getOrDefault("body", ""));
    }

    /** The fields of an object, with the text of their values. */
    static Map<String, String> fields(String object) {
        Map<String, String> fields = new HashMap<>();
        String name = null;
        int depth = 0, start = -1;
        for (Matcher m = TOKEN.matcher(object); m.find();) {
            String token = m.group();
            boolean ends = token.equals("}") || token.equals("]");
            if (depth == 1 && (token.equals(",") || ends)) {
                if (name != null) {
                    fields.put(name, object.substring(start, m.start()).strip());
                }
                name = null;
            } else if (depth == 1 && token.equals(":")) {
                start = m.end();
            } else if (depth == 1 && name == null) {
                name = unquote(token);
            }
            depth += token.equals("{") || token.equals("[") ? 1 : ends ? -1 : 0;
        }
        return fields;
    }

    static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        text.chars().forEach(c -> quoted.append(c < ' ' || c == '"' || c == '\\' ? "\\u%04x".formatted(c) : String.valueOf((char) c)));
        return quoted.append('"').toString();
    }

    static String unquote(String quoted) {
        return Pattern.compile("\\\\(?:u([0-9a-fA-F]{4})|(.))").matcher(quoted.substring(1, quoted.length() - 1)).replaceAll(m ->
                Matcher.quoteReplacement(m.group(1) != null ? String.valueOf((char) Integer.parseInt(m.group(1), 16))
                        : switch (m.group(2)) { case "n" -> "\n"; case "t" -> "\t"; case "r" -> "\r"; case "b" -> "\b"; case "f" -> "\f"; default -> m.group(2); }));
    }
}
