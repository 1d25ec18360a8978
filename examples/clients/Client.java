import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.Arrays;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;

/** A client that waits as it is told: java Client.java METHOD URL... */
public class Client {
    private static final Set<String> IDEMPOTENT = Set.of("GET", "HEAD", "OPTIONS", "PUT", "DELETE");

    /**
     * Sends a request. If it is denied (429, or 503 with Retry-After) it is sent again after the
     * wait that the answer asks for: at most so many tries, and so much waiting in all. If it may
     * not be sent again, or not so late, the denial is returned.
     */
    static HttpResponse<String> send(HttpClient client, HttpRequest request, int tries, Duration maxWait)
            throws IOException, InterruptedException {
        boolean again = IDEMPOTENT.contains(request.method());
        for (Duration left = maxWait; ; tries--) {
            HttpResponse<String> response = client.send(request, BodyHandlers.ofString());
            Optional<Duration> told = retryAfter(response);
            if (told.isEmpty() || told.get().compareTo(left) > 0 || tries <= 1 || !again) {
                return response;
            }
            // Clients that were denied together come back apart.
            double longer = 1 + ThreadLocalRandom.current().nextDouble() / 10;
            Duration wait = Duration.ofMillis((long) Math.ceil(told.get().toMillis() * longer));
            left = left.minus(wait);
            Thread.sleep(wait.toMillis());
        }
    }

    /** The wait that an answer asks for. */
    static Optional<Duration> retryAfter(HttpResponse<?> response) {
        if (response.statusCode() != 429 && response.statusCode() != 503) {
            return Optional.empty();
        }
        return response.headers().firstValue("Retry-After").flatMap(Client::parse);
    }

    private static Optional<Duration> parse(String text) {
        if (text.matches("[0-9]{1,9}")) {
            return Optional.of(Duration.ofSeconds(Long.parseLong(text)));
        }
        try {
            Instant at = ZonedDateTime.parse(text, DateTimeFormatter.RFC_1123_DATE_TIME).toInstant();
            Duration wait = Duration.between(Instant.now(), at);
            return Optional.of(wait.isNegative() ? Duration.ZERO : wait);
        } catch (DateTimeException e) {
            return Optional.empty();
        }
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        HttpClient client = HttpClient.newHttpClient();
        for (String url : Arrays.asList(args).subList(1, args.length)) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(url))
                    .method(args[0], HttpRequest.BodyPublishers.noBody())
                    .timeout(Duration.ofSeconds(30))
                    .build();
            HttpResponse<String> response = send(client, request, 4, Duration.ofMinutes(1));
            System.out.println(response.statusCode() + " " + response.body());
        }
    }
}
