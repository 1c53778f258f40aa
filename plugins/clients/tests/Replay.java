import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import privopt.PrivoptClient;

/** What tests ask of the jar: the same tasks as those of replay.mjs. Arguments: task, number, artefact, inputs, entropy. */
public final class Replay {
    public static void main(String[] given) throws Exception {
        int number = Integer.parseInt(given[1]);
        byte[] data = Files.readAllBytes(Path.of(given[2]));
        List<String> lines = Files.readAllLines(Path.of(given[3]), StandardCharsets.UTF_8);
        PrivoptClient client = PrivoptClient.open(data);
        String told;
        switch (given[0]) {
            case "vectors" -> told = vectors(client, lines);
            case "hash" -> told = hash(client, lines, Files.readAllBytes(Path.of(given[4])), number);
            case "bits" -> told = String.valueOf(refused(data, number));
            case "draws" -> told = draws(client, lines.get(0), number);
            default -> throw new IllegalArgumentException(given[0]);
        }
        System.out.write(told.getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }

    private static PrivoptClient.Report report(PrivoptClient client, String[] parts, byte[] entropy) {
        if (parts.length == 1) {
            return entropy == null ? client.report(parts[0]) : client.reportFrom(parts[0], entropy);
        }
        double first = Double.parseDouble(parts[0]);
        double second = Double.parseDouble(parts[1]);
        return entropy == null ? client.report(first, second) : client.reportFrom(first, second, entropy);
    }

    private static String vectors(PrivoptClient client, List<String> lines) throws IOException {
        StringBuilder told = new StringBuilder(client.promise() + "\n" + client.release());
        for (String line : lines) {
            String[] parts = line.split("\t");
            String digits = parts[parts.length - 1];
            byte[] entropy = new byte[digits.length() / 2];
            for (int at = 0; at < entropy.length; at++) {
                entropy[at] = (byte) Integer.parseInt(digits.substring(2 * at, 2 * at + 2), 16);
            }
            PrivoptClient.Report report = report(client, Arrays.copyOf(parts, parts.length - 1), entropy);
            told.append("\n" + report.id);
            if (!Double.isNaN(report.first)) {
                told.append("\t" + report.first + "\t" + report.second);
            }
        }
        return told.toString();
    }

    private static String hash(PrivoptClient client, List<String> lines, byte[] entropy, int size) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        String[][] inputs = lines.stream().map(line -> line.split("\t")).toArray(String[][]::new);
        for (int at = 0; at < entropy.length / size; at++) {
            String id;
            try {
                byte[] part = Arrays.copyOfRange(entropy, at * size, (at + 1) * size);
                id = report(client, inputs[at % inputs.length], part).id;
            } catch (IllegalArgumentException error) {
                id = "no block counts";
            }
            digest.update((id + "\n").getBytes(StandardCharsets.UTF_8));
        }
        StringBuilder told = new StringBuilder();
        for (byte one : digest.digest()) {
            told.append(String.format("%02x", one));
        }
        return told.toString();
    }

    private static int refused(byte[] data, int count) throws PrivoptClient.DamagedArtefactException {
        byte[] given = data.clone();
        PrivoptClient opened = PrivoptClient.open(given);
        Arrays.fill(given, (byte) 0); // after it was checked: nothing changes
        int found = opened.report(opened.ids().get(0)).id == null ? -1 : 0;
        for (int at = 0; at < count; at++) {
            long bit = (long) at * data.length * 8 / count;
            byte[] changed = data.clone();
            changed[(int) (bit >> 3)] ^= (byte) (1 << (bit & 7));
            try {
                PrivoptClient.open(changed);
            } catch (PrivoptClient.DamagedArtefactException error) {
                found += error.getMessage().startsWith("mechanism.bin must be as it was written") ? 1 : 0;
            }
        }
        return found;
    }

    private static String draws(PrivoptClient client, String line, int count) {
        Map<String, Integer> counts = new HashMap<>();
        String[] parts = line.split("\t");
        long least = Long.MAX_VALUE; // of ten batches the fastest counts, for other programs take time too
        for (int batch = 0; batch < 10; batch++) {
            long began = System.nanoTime();
            for (int n = 0; n < count / 10; n++) {
                counts.merge(report(client, parts, null).id, 1, Integer::sum);
            }
            least = Math.min(least, System.nanoTime() - began);
        }
        StringBuilder told = new StringBuilder(String.valueOf(least * 10 / count));
        counts.forEach((id, times) -> told.append("\n" + times + "\t" + id));
        return told.toString();
    }
}
