package org.fermion.flink;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.util.FlinkRuntimeException;

/** Plans the splits of one snapshot, and gives one to each reader that asks. */
final class ScanEnumerator implements SplitEnumerator<FermionSplit, ScanEnumerator.Waiting> {
    private static final int SPLITS_PER_READER = 2;

    private final SplitEnumeratorContext<FermionSplit> context;
    private final TableAccess table;
    private final String scan;
    private final String version;
    private final Deque<FermionSplit> waiting = new ArrayDeque<>();
    private final Set<Integer> asking = new LinkedHashSet<>();
    private boolean isPlanned;

    ScanEnumerator(
            SplitEnumeratorContext<FermionSplit> context, TableAccess table, String scan, String version, Waiting state) {
        this.context = context;
        this.table = table;
        this.scan = scan;
        this.version = version;
        if (state != null && state.splits != null) {
            waiting.addAll(state.splits);
            isPlanned = true;
        }
    }

    /** The splits that no reader has; null: nothing is planned yet. */
    record Waiting(List<FermionSplit> splits) {}

    @Override
    public void start() {
        if (!isPlanned) {
            context.callAsync(this::plan, this::planned);
        }
    }

    private JsonNode plan() throws IOException {
        ObjectNode request = table.request("plan");
        request.setAll(TableAccess.jsonObject(scan));
        request.set("version", TableAccess.jsonObject(version));
        request.put("tasks_min", SPLITS_PER_READER * context.currentParallelism());
        return table.ask(request);
    }

    private void planned(JsonNode plan, Throwable error) {
        if (error != null) {
            throw new FlinkRuntimeException(table.path() + ": " + error.getMessage(), error);
        }
        for (JsonNode split : plan.get("splits")) {
            ObjectNode request = TableAccess.JSON.createObjectNode();
            request.set("snapshot", plan.get("snapshot"));
            request.set("schema", plan.get("schema"));
            request.set("split", split);
            long number = waiting.size();
            waiting.add(new FermionSplit("scan-" + number, number, request.toString(), 0, FermionSplit.Place.NONE));
        }
        isPlanned = true;
        assign();
    }

    private void assign() {
        if (!isPlanned) {
            return;
        }
        for (var readers = asking.iterator(); readers.hasNext();) {
            int reader = readers.next();
            readers.remove();
            if (!context.registeredReaders().containsKey(reader)) {
                continue;
            }
            if (waiting.isEmpty()) {
                context.signalNoMoreSplits(reader);
            } else {
                context.assignSplit(waiting.poll(), reader);
            }
        }
    }

    @Override
    public void handleSplitRequest(int reader, String host) {
        asking.add(reader);
        assign();
    }

    @Override
    public void addSplitsBack(List<FermionSplit> splits, int reader) {
        List<FermionSplit> all = new ArrayList<>(waiting);
        all.addAll(splits);
        all.sort(Comparator.comparingLong(FermionSplit::sequence));
        waiting.clear();
        waiting.addAll(all);
        asking.remove(reader);
        assign();
    }

    @Override
    public void addReader(int reader) {}

    @Override
    public Waiting snapshotState(long checkpoint) {
        return new Waiting(isPlanned ? new ArrayList<>(waiting) : null);
    }

    @Override
    public void close() {}

    /** Writes the state of checkpoints. */
    static final class Serializer implements SimpleVersionedSerializer<Waiting> {
        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(Waiting state) throws IOException {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(bytes);
            out.writeInt(state.splits == null ? -1 : state.splits.size());
            if (state.splits != null) {
                for (FermionSplit split : state.splits) {
                    FermionSplit.write(out, split);
                }
            }
            return bytes.toByteArray();
        }

        @Override
        public Waiting deserialize(int version, byte[] bytes) throws IOException {
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
            int count = in.readInt();
            if (count < 0) {
                return new Waiting(null);
            }
            List<FermionSplit> splits = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                splits.add(FermionSplit.read(in));
            }
            return new Waiting(splits);
        }
    }
}
