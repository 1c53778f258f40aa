import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import privopt.PrivoptClient;

/** Runs the client as tests ask: replays vectors, hashes reports, changes bits, counts draws. */
public final class Replay {
    public static void main(String[] given) throws Exception {
        byte[] data = Files.readAllBytes(Path.of(given[1]));
        PrivoptClient client = PrivoptClient.open(data);
        switch (given[0]) {
            case "vectors" -> vectors(client, Files.readAllLines(Path.of(given[2]), StandardCharsets.UTF_8));
            case "hash" -> hash(client, Files.readAllBytes(Path.of(given[2])), Integer.parseInt(given[3]));
            case "bits" -> bits(data);
            case "draws" -> draws(client, Integer.parseInt(given[2]));
            default -> throw new IllegalArgumentException(given[0]);
        }
    }

    /** Prints a line for each line of an id or two numbers, and entropy in hexadecimal digits, parted by tabs. */
    private static void vectors(PrivoptClient client, List<String> lines) throws IOException {
        StringBuilder told = new StringBuilder(client.promise() + "\n" + client.release() + "\n");
        for (String line : lines) {
            String[] parts = line.split("\t");
            byte[] entropy = new byte[parts[parts.length - 1].length() / 2];
            for (int at = 0; at < entropy.length; at++) {
                entropy[at] = (byte) Integer.parseInt(parts[parts.length - 1].substring(2 * at, 2 * at + 2), 16);
            }
            PrivoptClient.Report report = parts.length == 2
                    ? client.reportFrom(parts[0], entropy)
                    : client.reportFrom(Double.parseDouble(parts[0]), Double.parseDouble(parts[1]), entropy);
            told.append(report.id + "\t" + report.first + "\t" + report.second + "\n");
        }
        System.out.write(told.toString().getBytes(StandardCharsets.UTF_8));
    }

    private static void hash(PrivoptClient client, byte[] entropy, int size) throws Exception {
        MessageDigest told = MessageDigest.getInstance("SHA-256");
        List<String> ids = client.ids();
        byte[] part = new byte[size];
        ByteBuffer left = ByteBuffer.wrap(entropy);
        for (int at = 0; left.hasRemaining(); at++) {
            left.get(part);
            String id = "no block counts";
            try {
                id = client.reportFrom(ids.get(at % ids.size()), part).id;
            } catch (IllegalArgumentException error) {
                id = "no block counts";
            }
            told.update((id + "\n").getBytes(StandardCharsets.UTF_8));
        }
        for (byte one : told.digest()) {
            System.out.printf("%02x", one);
        }
    }

    private static void bits(byte[] data) {
        int refused = 0;
        for (int at = 0; at < 300; at++) {
            byte[] changed = data.clone();
            changed[at < 60 ? at : at * 7919 % data.length] ^= (byte) (1 << at % 8);
            try {
                PrivoptClient.open(changed);
            } catch (PrivoptClient.DamagedArtefactException error) {
                refused++;
            }
        }
        System.out.print(refused);
    }

    private static void draws(PrivoptClient client, int count) {
        Map<String, Integer> counts = new HashMap<>();
        String id = client.ids().get(0);
        long began = System.nanoTime();
        for (int n = 0; n < count; n++) {
            counts.merge(client.report(id).id, 1, Integer::sum);
        }
        System.out.println(System.nanoTime() - began);
        counts.forEach((report, times) -> System.out.println(times + "\t" + report));
    }
}
