package privopt;

import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.SecureRandom;
import java.text.Normalizer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;

/**
 * Opens mechanism.bin and draws reports on the device.
 *
 * <p>The format and the rules of drawing are documented in docs/reference/client.md; the ES module privopt-client.mjs
 * does the same. All arithmetic is on whole numbers. A draw looks at every entry of its row and at every place,
 * whichever the secret is. Nothing but java.base is used; Android has all of it.
 */
public final class PrivoptClient {
    private static final byte[] MAGIC = {0x50, 0x52, 0x49, 0x56, 0x4f, 0x50, 0x54, 1}; // "PRIVOPT" and the version
    private static final int DIGEST = 32; // bytes of SHA-256
    private static final int START = MAGIC.length + DIGEST;
    private static final int ROWS = 1; // kinds of mechanism: whole rows,
    private static final int COLUMNS = 2; // a weight a place with a graph,
    private static final int EVERYWHERE = 3; // whole rows of a region's vertices,
    private static final int PREDICTIVE = 4; // and whole rows with the numbers of a test
    private static final int DEGREES = 1; // kinds of places: 0 ids alone, 1 degrees, 2 a plane
    private static final double[] UNITS = {0, 10000000, 1000000}; // integer units in a degree, in a kilometre
    private static final long HALF_TURN = 1800000000L; // 180 degrees in units of 1e-7
    private static final double[][] LOWEST = {{}, {-90, -180}, {-1000, -1000}};
    private static final double[][] HIGHEST = {{}, {90, 360}, {1000, 1000}};

    private final SecureRandom generator = new SecureRandom();
    private final String promise;
    private final String release;
    private final String proof;
    private final Places records;
    private final Places outputs;
    private final Map<String, Integer> rows = new HashMap<>();
    private final Rule rule;

    /** A report: the id of an output and its coordinates (lat and lon, or x and y in km), NaN where it has none. */
    public static final class Report {
        public final String id;
        public final double first;
        public final double second;

        Report(String id, double first, double second) {
            this.id = id;
            this.first = first;
            this.second = second;
        }
    }

    /** Bytes that are no artefact, or not as they were written. */
    public static final class DamagedArtefactException extends Exception {
        private static final long serialVersionUID = 1;

        DamagedArtefactException(String message) {
            super(message);
        }
    }

    /** Opens an artefact; a change of any bit that was not meant is found before anything can be drawn. */
    public static PrivoptClient open(byte[] bytes) throws DamagedArtefactException {
        return open(bytes, null);
    }

    /**
     * Opens an artefact whose SHA-256 is known, in hexadecimal digits as {@code privopt export} said it: whoever
     * changes the file on purpose can make its inner sum fit again, but not this one.
     */
    public static PrivoptClient open(byte[] bytes, String sha256) throws DamagedArtefactException {
        byte[] data = bytes.clone(); // nobody can change the bytes after they were checked
        if (sha256 != null && !hex(digest(data, 0)).equals(sha256.toLowerCase(java.util.Locale.ROOT))) {
            throw damaged("have the SHA-256 asked for, got another: fetch it again");
        }
        boolean begins = data.length >= START && Arrays.equals(Arrays.copyOf(data, MAGIC.length), MAGIC);
        if (!begins || !MessageDigest.isEqual(Arrays.copyOfRange(data, MAGIC.length, START), digest(data, START))) {
            throw damaged("be as it was written, got changed bytes: fetch it again");
        }
        try {
            return new PrivoptClient(new Reader(ByteBuffer.wrap(data, START, data.length - START).slice()));
        } catch (java.nio.BufferUnderflowException | CharacterCodingException error) {
            throw damaged("be whole, got fewer bytes than it speaks of: export again");
        }
    }

    private PrivoptClient(Reader reader) throws DamagedArtefactException, CharacterCodingException {
        int kind = reader.small();
        int places = reader.small();
        int own = reader.small();
        int reported = reader.small();
        if (kind < ROWS || kind > PREDICTIVE || places > 2 || own > 1 || reported > 2) {
            throw damaged("be of kind 1 to 4, got another: update the client");
        }
        promise = reader.text();
        release = reader.text();
        proof = reader.text();
        int count = reader.count();
        int outcomes = reader.count();
        records = new Places(reader, places, count);
        outputs = own == 1 ? new Places(reader, reported, outcomes) : records;
        for (int row = 0; row < count; row++) {
            rows.put(records.ids[row], row);
        }
        if (kind == COLUMNS && (own == 1 || outcomes != count)) {
            throw damaged("report its records by column weights, got outputs of its own: export again");
        }
        if (kind == COLUMNS) {
            rule = new Columns(reader, count);
        } else {
            Rows whole = new Rows(reader, count, outcomes);
            rule = kind == EVERYWHERE ? new Everywhere(reader, whole, places == DEGREES) : whole;
        }
        if (kind == PREDICTIVE) {
            reader.prediction(count, outcomes);
        }
        if (reader.bytes.hasRemaining()) {
            throw damaged("end with its last row, got more bytes: export again");
        }
    }

    /** Returns the guarantee in one sentence. */
    public String promise() {
        return promise;
    }

    /** Returns the SHA-256 of the release's SHA256SUMS, in hexadecimal digits. */
    public String release() {
        return release;
    }

    /** Returns the SHA-256 of the release's proof.npz, empty where there is none. */
    public String proof() {
        return proof;
    }

    /** Returns the ids of the records. */
    public List<String> ids() {
        return List.of(records.ids);
    }

    /** Returns the bytes of entropy that a report takes. */
    public int entropy() {
        return rule.entropy();
    }

    /** Draws a report for the id of a record, from the system's generator. */
    public Report report(String id) {
        return drawn(Part.whole(rowOf(id)));
    }

    /** Draws a report for the record nearest to a position: lat and lon in degrees, or x and y in km. */
    public Report report(double first, double second) {
        return drawn(around(first, second));
    }

    /** Returns the report that given bytes lead to; they must be uniform and never used again, or nothing is promised. */
    public Report reportFrom(String id, byte[] entropy) {
        return from(Part.whole(rowOf(id)), entropy);
    }

    /** Returns the report of a position that given bytes lead to. */
    public Report reportFrom(double first, double second, byte[] entropy) {
        return from(around(first, second), entropy);
    }

    /** Returns the row of the record nearest to a position, or the rows that it mixes. */
    private List<Part> around(double first, double second) {
        long[] at = records.units(first, second);
        return rule instanceof Everywhere
                ? ((Everywhere) rule).mixture(at[0], at[1])
                : Part.whole(records.nearest(at[0], at[1]));
    }

    private int rowOf(String id) {
        Integer row = rows.get(Normalizer.normalize(id, Normalizer.Form.NFC)); // the form of all ids
        if (row == null) {
            throw new IllegalArgumentException("the secret must be the id of a record, got another text");
        }
        return row;
    }

    private Report drawn(List<Part> where) {
        byte[] entropy = new byte[rule.entropy()];
        int output;
        do {
            generator.nextBytes(entropy);
            output = rule.draw(where, entropy);
        } while (output < 0);
        Arrays.fill(entropy, (byte) 0);
        return outputs.report(output);
    }

    private Report from(List<Part> where, byte[] entropy) {
        if (entropy.length < rule.block()) {
            throw new IllegalArgumentException(
                    "entropy must be " + rule.block() + " bytes at least, got " + entropy.length);
        }
        int output = rule.draw(where, entropy);
        if (output < 0) {
            throw new IllegalArgumentException("entropy must have a block that counts, got none: give more blocks");
        }
        return outputs.report(output);
    }

    /** A row and its share, a whole number, of those that are mixed. */
    private static final class Part {
        final int row;
        final BigInteger share;

        Part(int row, BigInteger share) {
            this.row = row;
            this.share = share;
        }

        static List<Part> whole(int row) {
            return List.of(new Part(row, BigInteger.ONE));
        }
    }

    /** How an output is drawn for rows. */
    private interface Rule {
        int entropy();

        int block();

        /** Returns the output that entropy leads to, -1 where no block of it counts. */
        int draw(List<Part> where, byte[] entropy);
    }

    /**
     * Returns the output that the first block of entropy that counts answers to, -1 where none does. So many numbers of
     * a block stand for each unit of weight (null: as many as fit), and the others do not count.
     */
    private static int drawByBlocks(BigInteger[] weights, int size, byte[] entropy, BigInteger each) {
        BigInteger[] cumulated = new BigInteger[weights.length];
        BigInteger sum = BigInteger.ZERO;
        for (int place = 0; place < weights.length; place++) {
            sum = sum.add(weights[place]);
            cumulated[place] = sum;
        }
        BigInteger whole = BigInteger.ONE.shiftLeft(8 * size);
        if (sum.compareTo(whole) > 0) {
            throw new IllegalStateException("mechanism.bin must have rows that a block covers: export again");
        }
        BigInteger often = each == null ? whole.divide(sum) : each;
        for (int start = 0; start + size <= entropy.length; start += size) {
            byte[] reversed = new byte[size]; // the last byte counts most
            for (int at = 0; at < size; at++) {
                reversed[at] = entropy[start + size - 1 - at];
            }
            BigInteger number = new BigInteger(1, reversed).divide(often);
            if (number.compareTo(sum) < 0) {
                int index = 0;
                for (BigInteger above : cumulated) {
                    index += above.compareTo(number) <= 0 ? 1 : 0;
                }
                return index;
            }
        }
        return -1;
    }

    /** Whole rows of weights that sum to 2^63. */
    private static final class Rows implements Rule {
        private static final long WHOLE = 1L << 63; // as an unsigned number

        final long[][] weights;

        Rows(Reader reader, int records, int outputs) throws DamagedArtefactException {
            reader.expect(8L * records * outputs);
            weights = new long[records][outputs];
            for (long[] row : weights) {
                long sum = 0; // unsigned, 2^63 at most
                for (int k = 0; k < outputs; k++) {
                    row[k] = reader.bytes.getLong();
                    if (Long.compareUnsigned(row[k], WHOLE - sum) > 0) {
                        throw otherSum();
                    }
                    sum += row[k];
                }
                if (sum != WHOLE) {
                    throw otherSum();
                }
            }
        }

        private static DamagedArtefactException otherSum() {
            return damaged("have rows that sum to 2^63, got another sum: export again");
        }

        @Override
        public int entropy() {
            return Long.BYTES;
        }

        @Override
        public int block() {
            return Long.BYTES;
        }

        @Override
        public int draw(List<Part> where, byte[] entropy) {
            int row = where.get(0).row;
            long word = ByteBuffer.wrap(entropy).order(ByteOrder.LITTLE_ENDIAN).getLong() >>> 1;
            long above = 0;
            int index = 0;
            for (long weight : weights[row]) {
                above += weight;
                index += Long.compareUnsigned(above, word) <= 0 ? 1 : 0;
            }
            return index;
        }
    }

    /** One weight a place: row i has weight X_k T[D_ik], D in steps along a graph. */
    private static final class Columns implements Rule {
        private static final int LONGEST = 1 << 24; // steps of a way

        private final int block;
        private final int tries;
        private final BigInteger[] table;
        private final BigInteger[] weights;
        private final List<List<int[]>> after = new ArrayList<>();

        Columns(Reader reader, int records) throws DamagedArtefactException {
            BigInteger factor = reader.unsigned();
            BigInteger top = reader.unsigned();
            long longest = Integer.toUnsignedLong(reader.bytes.getInt());
            block = reader.small();
            tries = reader.small() + 256 * reader.small();
            int edges = reader.count();
            if (block == 0 || tries == 0 || longest > LONGEST) {
                throw damaged("have blocks of entropy and ways that fit into memory: export again");
            }
            reader.expect(12L * edges + 4L * records);
            int[][] ends = new int[3][edges];
            for (int[] numbers : ends) {
                for (int edge = 0; edge < edges; edge++) {
                    numbers[edge] = reader.bytes.getInt();
                }
            }
            weights = new BigInteger[records];
            for (int place = 0; place < records; place++) {
                weights[place] = BigInteger.valueOf(Integer.toUnsignedLong(reader.bytes.getInt()));
                after.add(new ArrayList<>());
            }
            for (int edge = 0; edge < edges; edge++) {
                int tail = ends[0][edge];
                int head = ends[1][edge];
                if (Integer.compareUnsigned(tail, records) >= 0 || Integer.compareUnsigned(head, records) >= 0) {
                    throw damaged("join places, got an edge beyond them: export again");
                }
                after.get(tail).add(new int[] {head, ends[2][edge]});
                after.get(head).add(new int[] {tail, ends[2][edge]});
            }
            table = table(factor, top, (int) longest);
        }

        private static BigInteger[] table(BigInteger factor, BigInteger top, int longest) {
            BigInteger up = BigInteger.ONE.shiftLeft(64).subtract(BigInteger.ONE);
            BigInteger[] found = new BigInteger[longest + 1];
            found[0] = top;
            for (int step = 0; step < longest; step++) {
                found[step + 1] = found[step].multiply(factor).add(up).shiftRight(64);
            }
            return found;
        }

        @Override
        public int entropy() {
            return block * tries;
        }

        @Override
        public int block() {
            return block;
        }

        @Override
        public int draw(List<Part> where, byte[] entropy) {
            int[] steps = stepsFrom(where.get(0).row);
            BigInteger[] row = new BigInteger[steps.length];
            for (int place = 0; place < steps.length; place++) {
                row[place] = weights[place].multiply(table[steps[place]]);
            }
            return drawByBlocks(row, block, entropy, BigInteger.ONE);
        }

        /** Returns the steps of the shortest way to each place, by Dijkstra. */
        private int[] stepsFrom(int row) {
            int[] found = new int[after.size()];
            Arrays.fill(found, -1);
            PriorityQueue<long[]> heap = new PriorityQueue<>((a, b) -> Long.compare(a[0], b[0]));
            heap.add(new long[] {0, row});
            while (!heap.isEmpty()) {
                long[] least = heap.poll();
                int place = (int) least[1];
                if (found[place] < 0) {
                    if (least[0] >= table.length) {
                        throw outOfReach();
                    }
                    found[place] = (int) least[0];
                    for (int[] edge : after.get(place)) {
                        if (found[edge[0]] < 0) {
                            heap.add(new long[] {least[0] + Integer.toUnsignedLong(edge[1]), edge[0]});
                        }
                    }
                }
            }
            for (int steps : found) {
                if (steps < 0) {
                    throw outOfReach();
                }
            }
            return found;
        }

        private static IllegalStateException outOfReach() {
            return new IllegalStateException("mechanism.bin must join all its places, got one out of reach: export again");
        }
    }

    /** Whole rows of a region's vertices: the row of a position is a sum of the rows around it, times whole numbers. */
    private static final class Everywhere implements Rule {
        private static final long TURN = 2 * HALF_TURN;
        private static final double NEAR = 0x1p-40; // relative, around squared distances from sides

        private final long[][] rows;
        private final int steps;
        private final int block;
        private final boolean degrees;
        private final long[] origin = new long[2];
        private final BigInteger[] scales = new BigInteger[2];
        private final long[][] vertices;
        private final int[][] triangles;
        private final int[][] sides;
        private final BigInteger whole;
        private final BigInteger[] reaches;

        Everywhere(Reader reader, Rows given, boolean degrees) throws DamagedArtefactException {
            this.rows = given.weights;
            this.degrees = degrees;
            int corners = reader.small();
            steps = reader.small();
            block = reader.small() + 256 * reader.small();
            if (degrees) {
                origin[0] = reader.bytes.getInt();
                origin[1] = reader.bytes.getInt();
                scales[0] = reader.unsigned();
                scales[1] = reader.unsigned();
            }
            reader.expect(8L * rows.length);
            vertices = new long[rows.length][2];
            for (long[] vertex : vertices) {
                vertex[0] = reader.bytes.getInt();
                vertex[1] = reader.bytes.getInt();
            }
            int[][] simplices = groups(reader, corners);
            int[][] rim = groups(reader, 2);
            triangles = corners == 3 ? simplices : new int[0][];
            sides = corners == 2 ? simplices : rim;
            if ((corners != 2 && corners != 3) || sides.length == 0) {
                throw damaged("have streets or triangles, got others: export again");
            }
            whole = steps == 0 ? BigInteger.ONE : reader.large();
            reaches = new BigInteger[steps == 0 ? 0 : simplices.length];
            for (int street = 0; street < reaches.length; street++) {
                reaches[street] = reader.large();
            }
        }

        private int[][] groups(Reader reader, int size) throws DamagedArtefactException {
            int count = reader.count();
            reader.expect(4L * count * size);
            int[][] found = new int[count][size];
            for (int[] group : found) {
                for (int corner = 0; corner < size; corner++) {
                    group[corner] = reader.bytes.getInt();
                    if (Integer.compareUnsigned(group[corner], vertices.length) >= 0) {
                        throw damaged("have streets or triangles between its vertices, got others: export again");
                    }
                }
            }
            return found;
        }

        @Override
        public int entropy() {
            return block;
        }

        @Override
        public int block() {
            return block;
        }

        @Override
        public int draw(List<Part> where, byte[] entropy) {
            BigInteger[] mixed = new BigInteger[rows[0].length];
            Arrays.fill(mixed, BigInteger.ZERO);
            for (Part part : where) {
                for (int k = 0; k < mixed.length; k++) { // 2^63 alone is negative as a long
                    mixed[k] = mixed[k].add(part.share.multiply(BigInteger.valueOf(rows[part.row][k]).abs()));
                }
            }
            return drawByBlocks(mixed, block, entropy, null);
        }

        /** Returns the rows that a position in units mixes, and the share of each. */
        List<Part> mixture(long first, long second) {
            long[] at = inMillimetres(first, second);
            for (int[] corners : triangles) {
                long[] shares = insideShares(corners, at);
                if (shares != null) {
                    List<Part> parts = new ArrayList<>();
                    for (int corner = 0; corner < 3; corner++) {
                        parts.add(new Part(corners[corner], BigInteger.valueOf(shares[corner])));
                    }
                    return parts;
                }
            }
            int side = nearestSide(at);
            BigInteger[] foot = footOn(sides[side], at);
            BigInteger[] share = steps == 0 ? foot : curved(foot[0], foot[1], reaches[side]);
            return List.of(new Part(sides[side][0], share[1].subtract(share[0])), new Part(sides[side][1], share[0]));
        }

        private long[] inMillimetres(long first, long second) {
            if (!degrees) {
                return new long[] {first, second};
            }
            long east = Math.floorMod(second - origin[1] + HALF_TURN, TURN) - HALF_TURN;
            return new long[] {scaled(east, scales[0]), scaled(first - origin[0], scales[1])};
        }

        private static long scaled(long units, BigInteger scale) {
            return BigInteger.valueOf(units).multiply(scale).add(BigInteger.ONE.shiftLeft(23)).shiftRight(24).longValue();
        }

        /** Returns barycentric coordinates times twice a triangle's area, null outside it; below 2^63 within its box. */
        private long[] insideShares(int[] corners, long[] at) {
            long[] a = vertices[corners[0]];
            long[] b = vertices[corners[1]];
            long[] c = vertices[corners[2]];
            for (int axis = 0; axis < 2; axis++) {
                if (at[axis] < Math.min(a[axis], Math.min(b[axis], c[axis]))
                        || at[axis] > Math.max(a[axis], Math.max(b[axis], c[axis]))) {
                    return null;
                }
            }
            long[] shares = {twice(b, c, at), twice(c, a, at), twice(a, b, at)};
            return shares[0] >= 0 && shares[1] >= 0 && shares[2] >= 0 ? shares : null;
        }

        private static long twice(long[] p, long[] q, long[] at) {
            return (p[0] - at[0]) * (q[1] - at[1]) - (p[1] - at[1]) * (q[0] - at[0]);
        }

        /** Returns the side nearest to a point, the first of several: by doubles, and where they are near, exactly. */
        private int nearestSide(long[] at) {
            double[] squares = new double[sides.length];
            double least = Double.POSITIVE_INFINITY;
            double reach = 0;
            for (int side = 0; side < sides.length; side++) {
                long[] a = vertices[sides[side][0]];
                long[] b = vertices[sides[side][1]];
                double tx = a[0] - at[0];
                double ty = a[1] - at[1];
                double wx = b[0] - a[0];
                double wy = b[1] - a[1];
                double length = wx * wx + wy * wy;
                double gone = length > 0 ? Math.min(Math.max(-(tx * wx + ty * wy) / length, 0), 1) : 0;
                squares[side] = (tx + gone * wx) * (tx + gone * wx) + (ty + gone * wy) * (ty + gone * wy);
                least = Math.min(least, squares[side]);
                reach = Math.max(reach, length);
            }
            int best = -1;
            BigInteger[] found = null;
            for (int side = 0; side < sides.length; side++) {
                if (squares[side] <= least + (least + reach) * NEAR) {
                    BigInteger[] foot = footOn(sides[side], at);
                    if (best < 0 || foot[2].multiply(found[1]).compareTo(found[2].multiply(foot[1])) < 0) {
                        best = side;
                        found = foot;
                    }
                }
            }
            return best;
        }

        /** Returns how far along a side a point's nearest one is, of what, and the square of the distance times that. */
        private BigInteger[] footOn(int[] ends, long[] at) {
            BigInteger[] t = new BigInteger[2];
            BigInteger[] w = new BigInteger[2];
            for (int axis = 0; axis < 2; axis++) {
                t[axis] = BigInteger.valueOf(vertices[ends[0]][axis] - at[axis]);
                w[axis] = BigInteger.valueOf(vertices[ends[1]][axis] - vertices[ends[0]][axis]);
            }
            BigInteger square = t[0].multiply(t[0]).add(t[1].multiply(t[1]));
            BigInteger length = w[0].multiply(w[0]).add(w[1].multiply(w[1]));
            if (length.signum() == 0) {
                return new BigInteger[] {BigInteger.ZERO, BigInteger.ONE, square};
            }
            BigInteger along = t[0].multiply(w[0]).add(t[1].multiply(w[1])).negate();
            BigInteger gone = along.max(BigInteger.ZERO).min(length);
            BigInteger twice = gone.multiply(along).shiftLeft(1);
            return new BigInteger[] {gone, length, square.multiply(length).subtract(twice).add(gone.multiply(gone))};
        }

        /** Turns the part of a street that is gone into the share of its far end: S-shaped, and a ratio too. */
        private BigInteger[] curved(BigInteger gone, BigInteger length, BigInteger reach) {
            if (gone.shiftLeft(1).compareTo(length) > 0) {
                BigInteger[] near = curved(length.subtract(gone), length, reach);
                return new BigInteger[] {near[1].subtract(near[0]), near[1]};
            }
            if (reach.signum() == 0) {
                return new BigInteger[] {gone, length};
            }
            BigInteger pieces = BigInteger.valueOf(2L * steps);
            BigInteger d = pieces.multiply(whole);
            int piece = pieces.multiply(gone).divide(length).min(BigInteger.valueOf(steps - 1)).intValue();
            BigInteger rest = pieces.multiply(gone).subtract(length.multiply(BigInteger.valueOf(piece)));
            BigInteger mixed = length.multiply(d).add(rest.multiply(reach));
            BigInteger risen = d.add(reach).pow(piece).multiply(mixed).subtract(length.multiply(d.pow(piece + 1)));
            BigInteger all = length.shiftLeft(1).multiply(d.add(reach).pow(steps).subtract(d.pow(steps)));
            return new BigInteger[] {risen.multiply(d.pow(steps - 1 - piece)), all};
        }
    }

    /** Ids, and two whole numbers each where there are coordinates. */
    private static final class Places {
        final int kind;
        final String[] ids;
        final int[] points;
        final long[] cosines;

        Places(Reader reader, int kind, int count) throws DamagedArtefactException, CharacterCodingException {
            this.kind = kind;
            reader.expect(4L * count);
            ids = new String[count];
            for (int row = 0; row < count; row++) {
                ids[row] = reader.text();
            }
            int numbers = kind == 0 ? 0 : 2 * count;
            int curved = kind == DEGREES ? count : 0;
            reader.expect(4L * numbers + 4L * curved);
            points = new int[numbers];
            for (int at = 0; at < points.length; at++) {
                points[at] = reader.bytes.getInt();
            }
            cosines = new long[curved];
            for (int row = 0; row < cosines.length; row++) {
                cosines[row] = Integer.toUnsignedLong(reader.bytes.getInt());
            }
        }

        Report report(int output) {
            return kind == 0
                    ? new Report(ids[output], Double.NaN, Double.NaN)
                    : new Report(ids[output], points[2 * output] / UNITS[kind], points[2 * output + 1] / UNITS[kind]);
        }

        /** Returns a position in units. */
        long[] units(double first, double second) {
            if (kind == 0) {
                throw new IllegalArgumentException(
                        "the secret must be the id of a record, got a position: these records have none");
            }
            long a = inUnits(first, 0);
            long b = inUnits(second, 1);
            return new long[] {a, kind == DEGREES && b >= HALF_TURN ? b - 2 * HALF_TURN : b};
        }

        /** Returns the place nearest to a position in units, the first of several; all are looked at. */
        int nearest(long a, long b) {
            int best = 0;
            long least = Long.MAX_VALUE;
            for (int row = 0; row < ids.length; row++) {
                long up = a - points[2 * row];
                long across = b - points[2 * row + 1];
                if (kind == DEGREES) {
                    across += 2 * HALF_TURN * ((across < -HALF_TURN ? 1 : 0) - (across >= HALF_TURN ? 1 : 0));
                    across = Math.floorDiv(across * cosines[row], 65536L);
                }
                long square = up * up + across * across; // below 2^63 for every place that is allowed
                best = square < least ? row : best;
                least = Math.min(least, square);
            }
            return best;
        }

        private long inUnits(double number, int axis) {
            double lowest = LOWEST[kind][axis];
            double highest = HIGHEST[kind][axis];
            if (!(number >= lowest && number <= highest)) {
                throw new IllegalArgumentException(
                        "a position must lie between " + lowest + " and " + highest + ", got another number");
            }
            return (long) Math.floor(number * UNITS[kind] + 0.5);
        }
    }

    /** Reads one thing after another, little-endian. */
    private static final class Reader {
        final ByteBuffer bytes;

        Reader(ByteBuffer bytes) {
            this.bytes = bytes.order(ByteOrder.LITTLE_ENDIAN);
        }

        /** Refuses an artefact that says it has more than it has, before memory is taken for it. */
        void expect(long count) throws DamagedArtefactException {
            if (count > bytes.remaining()) {
                throw damaged("be whole, got fewer bytes than it speaks of: export again");
            }
        }

        int small() {
            return Byte.toUnsignedInt(bytes.get());
        }

        /** Returns a number of things that take a byte each at least. */
        int count() throws DamagedArtefactException {
            long found = Integer.toUnsignedLong(bytes.getInt());
            expect(found);
            return (int) found;
        }

        BigInteger unsigned() {
            return new BigInteger(Long.toUnsignedString(bytes.getLong()));
        }

        /** Returns a whole number of any size: how many bytes it takes, a byte, and these. */
        BigInteger large() {
            byte[] found = new byte[small()];
            for (int at = found.length - 1; at >= 0; at--) {
                found[at] = bytes.get();
            }
            return new BigInteger(1, found);
        }

        /** Reads over the numbers of a predictive policy's test, which this client does not have: reports are fresh. */
        void prediction(int records, int outputs) throws DamagedArtefactException {
            long size = 5L * Long.BYTES + 4L * records * outputs;
            expect(size);
            bytes.position(bytes.position() + (int) size);
        }

        /** Returns a text: its length in bytes, then UTF-8. */
        String text() throws DamagedArtefactException, CharacterCodingException {
            byte[] found = new byte[count()];
            bytes.get(found);
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(found)).toString();
        }
    }

    private static DamagedArtefactException damaged(String wanted) {
        return new DamagedArtefactException("mechanism.bin must " + wanted);
    }

    private static byte[] digest(byte[] data, int start) {
        try {
            MessageDigest sum = MessageDigest.getInstance("SHA-256");
            sum.update(data, start, data.length - start);
            return sum.digest();
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException("every Java has SHA-256", error);
        }
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte one : bytes) {
            text.append(Character.forDigit((one >> 4) & 15, 16)).append(Character.forDigit(one & 15, 16));
        }
        return text.toString();
    }
}
