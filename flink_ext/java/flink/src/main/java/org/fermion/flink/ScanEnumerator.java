package org.fermion.flink;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
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
import org.apache.flink.util.FlinkRuntimeException;

/** Plans the splits of one snapshot, and gives one to each reader that asks. */
final class ScanEnumerator implements SplitEnumerator<FermionSplit, ScanEnumerator.Waiting> {
    private static final int SPLITS_PER_READER = 2;

    private final SplitEnumeratorContext<FermionSplit> context;
    private final TableSource.Scan scan;
    private final Deque<FermionSplit> waiting = new ArrayDeque<>();
    private final Set<Integer> asking = new LinkedHashSet<>();
    private boolean isPlanned;

    ScanEnumerator(SplitEnumeratorContext<FermionSplit> context, TableSource.Scan scan, Waiting state) {
        this.context = context;
        this.scan = scan;
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
        ObjectNode request = scan.request("plan");
        request.set("version", TableAccess.jsonObject(scan.version()));
        request.put("tasks_min", SPLITS_PER_READER * context.currentParallelism());
        return scan.table().ask(request);
    }

    private void planned(JsonNode plan, Throwable error) {
        if (error != null) {
            throw new FlinkRuntimeException(scan.table().path() + ": " + error.getMessage(), error);
        }
        for (JsonNode split : plan.get("splits")) {
            waiting.add(FermionSplit.of(plan, split, waiting.size(), FermionSplit.Place.NONE));
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

    static void write(DataOutputStream out, Waiting state) throws IOException {
        out.writeBoolean(state.splits != null);
        State.writeSplits(out, state.splits == null ? List.of() : state.splits);
    }

    static Waiting read(DataInputStream in) throws IOException {
        boolean isPlanned = in.readBoolean();
        List<FermionSplit> splits = State.readSplits(in);
        return new Waiting(isPlanned ? splits : null);
    }
}
