package org.fermion.flink;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.flink.api.connector.source.SourceEvent;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.util.FlinkRuntimeException;
import org.fermion.worker.PythonWorker;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Plans the first snapshot and what changes later, and hands out the splits in order.
 *
 * <p>Changes of one place go to one reader, so that they stay in order up to where they are used. Where rows may have
 * moved from one place to another, and after the first snapshot, which any reader reads, a new phase begins: its
 * splits wait until all before are read, and until a checkpoint has seen their rows arrive.
 */
final class StreamEnumerator implements SplitEnumerator<FermionSplit, StreamEnumerator.Position> {
    private static final Logger LOG = LoggerFactory.getLogger(StreamEnumerator.class);
    private static final int SPLITS_PER_READER = 2;
    private static final int WAITING_MAX = 1_000;
    private static final long NONE = -1;

    private final SplitEnumeratorContext<FermionSplit> context;
    private final TableSource.Scan scan;
    private final StreamSettings settings;
    private final TreeMap<Long, FermionSplit> waiting = new TreeMap<>();
    private final Map<Integer, Map<String, FermionSplit>> held = new HashMap<>();
    private final Set<Integer> asking = new LinkedHashSet<>();
    private final Set<Integer> known = new HashSet<>(); // readers that have given back what they had
    private final TreeMap<Long, Long> positions = new TreeMap<>(); // by checkpoint
    private boolean isAwaiting; // some splits that come first may still be given back
    private volatile long snapshot = NONE; // planned up to here
    private volatile boolean isFull;
    private long sequence;
    private long phase; // of what was planned last
    private long open; // the last phase whose splits are handed out
    private String order = "";
    private boolean isSettled = true; // what was handed out has been seen by a checkpoint
    private long settling = NONE; // the checkpoint that will have
    private PythonWorker worker;
    private boolean isClosed;

    StreamEnumerator(SplitEnumeratorContext<FermionSplit> context, TableSource.Scan scan, StreamSettings settings,
            Position position) {
        this.context = context;
        this.scan = scan;
        this.settings = settings;
        if (position != null && position.snapshot != NONE) {
            isAwaiting = true;
            snapshot = position.snapshot;
            sequence = position.sequence;
            phase = position.phase;
            open = position.open;
            order = position.order;
            position.waiting.forEach(split -> waiting.put(split.sequence(), split));
        }
    }

    /**
     * What a checkpoint keeps; splits that readers have are in their state.
     *
     * @param snapshot planned up to here; -1: nothing is planned
     */
    record Position(long snapshot, long sequence, long phase, long open, String order, List<FermionSplit> waiting) {}

    @Override
    public void start() {
        if (snapshot == NONE) {
            context.callAsync(this::planFirst, this::planned);
        }
        long millis = settings.pollMillis();
        context.callAsync(this::planMore, this::planned, millis, millis);
    }

    private synchronized PythonWorker worker() throws IOException {
        if (isClosed) {
            throw new IOException("the source was closed");
        }
        if (worker == null) {
            worker = scan.table().command().start();
        }
        return worker;
    }

    private JsonNode planFirst() throws IOException {
        ObjectNode request = scan.request("begin");
        request.set("version", TableAccess.jsonObject(scan.version()));
        request.put("mode", settings.mode()).put("consumer", settings.consumer());
        request.put("tasks_min", SPLITS_PER_READER * context.currentParallelism());
        return worker().call(request);
    }

    private JsonNode planMore() throws IOException {
        long start = snapshot;
        if (start == NONE || isFull) {
            return null;
        }
        ObjectNode request = scan.request("plan_changes").put("start", start);
        return ((ObjectNode) worker().call(request)).put("start", start);
    }

    private void planned(JsonNode plan, Throwable error) {
        if (error != null) {
            throw new FlinkRuntimeException(scan.table().path() + ": " + error.getMessage(), error);
        }
        if (plan == null) {
            return;
        }
        if (!plan.has("start")) {
            addFirst(plan);
        } else if (plan.get("start").asLong() == snapshot) { // else two polls have planned the same
            addChanges(plan);
        }
        assign();
    }

    private void addFirst(JsonNode plan) {
        snapshot = plan.get("snapshot").asLong();
        for (JsonNode split : plan.get("splits")) {
            add(FermionSplit.of(plan, split, sequence, new FermionSplit.Place(phase, -1, snapshot)));
        }
    }

    private void addChanges(JsonNode plan) {
        long end = plan.get("snapshot").asLong();
        for (JsonNode group : plan.get("places")) {
            String next = group.get("order").asText();
            if (!next.equals(order)) {
                order = next;
                phase++;
            }
            ObjectNode request = TableAccess.JSON.createObjectNode().put("op", "read_changes")
                    .put("start", snapshot).put("end", end).put("deletes", settings.deletesToRead());
            request.set("places", group.get("places"));
            int owner = group.get("places").get(0).asText().hashCode() & Integer.MAX_VALUE;
            FermionSplit.Place place = new FermionSplit.Place(phase, owner, snapshot);
            add(new FermionSplit("split-" + sequence, sequence, request.toString(), 0, place));
        }
        snapshot = end;
    }

    private void add(FermionSplit split) {
        waiting.put(sequence, split);
        sequence++;
    }

    /** Splits of the open phase go to their readers, those of no reader to one that asks. */
    private void assign() {
        isFull = waiting.size() > WAITING_MAX;
        isAwaiting &= known.size() < context.currentParallelism();
        if (isAwaiting) {
            return;
        }
        openNextPhase();
        for (var splits = waiting.values().iterator(); splits.hasNext();) {
            FermionSplit split = splits.next();
            if (split.place().phase() > open) {
                break;
            }
            int reader = readerOf(split);
            if (reader < 0 || !context.registeredReaders().containsKey(reader) || !known.contains(reader)) {
                continue;
            }
            splits.remove();
            asking.remove(reader);
            held.computeIfAbsent(reader, number -> new HashMap<>()).put(split.splitId(), split);
            isSettled = false;
            settling = NONE;
            context.assignSplit(split, reader);
        }
        isFull = waiting.size() > WAITING_MAX;
    }

    private int readerOf(FermionSplit split) {
        if (split.place().owner() >= 0) {
            return split.place().owner() % context.currentParallelism();
        }
        return asking.isEmpty() ? -1 : asking.iterator().next();
    }

    private boolean isRead() {
        boolean isHeld = held.values().stream().anyMatch(splits -> !splits.isEmpty());
        return !isHeld && (waiting.isEmpty() || waiting.firstEntry().getValue().place().phase() > open);
    }

    private void openNextPhase() {
        if (!waiting.isEmpty() && isRead() && (isSettled || !settings.hasCheckpoints())) {
            open = waiting.firstEntry().getValue().place().phase();
        }
    }

    @Override
    public void handleSplitRequest(int reader, String host) {
        asking.add(reader);
        assign();
    }

    @Override
    public void handleSourceEvent(int reader, SourceEvent event) {
        if (event instanceof StreamReader.GaveBack back) {
            // What it does not give back it had read before the checkpoint.
            held.remove(reader);
            back.splits().forEach(split -> waiting.put(split.sequence(), split));
            known.add(reader);
            context.sendEventToSourceReader(reader, new StreamReader.Taken());
        } else if (event instanceof StreamReader.Finished done && held.containsKey(reader)) {
            done.splits().forEach(held.get(reader)::remove);
        }
        assign();
    }

    @Override
    public void addSplitsBack(List<FermionSplit> splits, int reader) {
        splits.forEach(split -> waiting.put(split.sequence(), split));
        isAwaiting = true;
        isSettled = false;
        settling = NONE;
        known.remove(reader);
        asking.remove(reader);
        held.remove(reader);
    }

    @Override
    public void addReader(int reader) {}

    @Override
    public Position snapshotState(long checkpoint) {
        Stream<FermionSplit> unread =
                Stream.concat(waiting.values().stream(), held.values().stream().map(Map::values).flatMap(Collection::stream));
        positions.put(checkpoint, unread.mapToLong(split -> split.place().position()).min().orElse(snapshot));
        if (settling == NONE && isRead()) {
            settling = checkpoint;
        }
        return new Position(snapshot, sequence, phase, open, order, new ArrayList<>(waiting.values()));
    }

    @Override
    public void notifyCheckpointComplete(long checkpoint) {
        if (settling != NONE && checkpoint >= settling) {
            isSettled = true;
            assign();
        }
        Map.Entry<Long, Long> position = positions.floorEntry(checkpoint);
        positions.headMap(checkpoint, true).clear();
        String consumer = settings.consumer();
        if (consumer != null && position != null && position.getValue() != NONE) {
            ObjectNode request = scan.table().request("record_consumer")
                    .put("consumer", consumer).put("snapshot", position.getValue());
            context.callAsync(() -> worker().call(request), (answer, error) -> {
                if (error != null) { // the next checkpoint says it again
                    LOG.warn("{}: consumer '{}' was not recorded", scan.table().path(), consumer, error);
                }
            });
        }
    }

    @Override
    public synchronized void close() {
        isClosed = true;
        if (worker != null) {
            worker.close();
        }
    }

    static void write(DataOutputStream out, Position position) throws IOException {
        out.writeLong(position.snapshot);
        out.writeLong(position.sequence);
        out.writeLong(position.phase);
        out.writeLong(position.open);
        out.writeUTF(position.order);
        State.writeSplits(out, position.waiting);
    }

    static Position read(DataInputStream in) throws IOException {
        return new Position(in.readLong(), in.readLong(), in.readLong(), in.readLong(), in.readUTF(),
                State.readSplits(in));
    }
}
