package org.fermion.flink;

import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.stream.IntStream;
import org.apache.flink.api.connector.source.ReaderInfo;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.connector.base.source.reader.splitreader.SplitsAddition;
import org.fermion.shaded.arrow.vector.IntVector;
import org.fermion.shaded.arrow.vector.VectorSchemaRoot;
import org.fermion.shaded.jackson.databind.JsonNode;
import org.fermion.worker.WorkerCommand;

/** What sources do in moments that a job meets seldom: see test_sources_in_java.py, which runs this with a claim's name. */
final class SourceClaims {
    private static final TableSource.Scan SCAN = new TableSource.Scan(
            new TableAccess(new WorkerCommand("/no/python", "flink_ext.worker"), "/no/table", "{}", "main"), "{}", "{}", 1);
    private static final String FIRST = "{\"snapshot\": 1, \"schema\": 1, \"splits\": [\"a\", \"b\"]}";
    private static final String CHANGES =
            "{\"start\": 1, \"snapshot\": 2, \"places\": [{\"order\": \"bucket\", \"places\": [\"p\"]}]}";

    private final List<String> assigned = new ArrayList<>();
    private final List<BiConsumer<JsonNode, Throwable>> plans = new ArrayList<>();
    private int readers = 1;

    public static void main(String[] arguments) throws Exception {
        SourceClaims claims = new SourceClaims();
        switch (arguments[0]) {
            case "overlapping polls" -> claims.overlappingPolls();
            case "changes wait" -> claims.changesWait();
            case "order after a restore" -> claims.orderAfterRestore();
            case "order of splits given back" -> claims.orderOfSplitsGivenBack();
            case "order within a reader" -> claims.orderWithinReader();
            case "batch that is emitted" -> claims.batchThatIsEmitted();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.out.println("holds");
    }

    private static void expect(Object expected, Object found) {
        if (!expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    /** A context that notes what is assigned, and what is to be called with plans. */
    @SuppressWarnings("unchecked")
    private SplitEnumeratorContext<FermionSplit> context() {
        return (SplitEnumeratorContext<FermionSplit>) Proxy.newProxyInstance(
                getClass().getClassLoader(), new Class<?>[] {SplitEnumeratorContext.class}, (proxy, method, values) -> {
                    switch (method.getName()) {
                        case "currentParallelism":
                            return readers;
                        case "registeredReaders":
                            return Map.of(0, new ReaderInfo(0, "here"), 1, new ReaderInfo(1, "here"));
                        case "callAsync":
                            plans.add((BiConsumer<JsonNode, Throwable>) values[1]);
                            return null;
                        case "assignSplit":
                            assigned.add(((FermionSplit) values[0]).splitId());
                            return null;
                        case "sendEventToSourceReader", "signalNoMoreSplits":
                            return null;
                        default:
                            throw new UnsupportedOperationException(method.toString());
                    }
                });
    }

    private static JsonNode json(String text) throws Exception {
        return TableAccess.JSON.readTree(text);
    }

    private StreamEnumerator stream(StreamEnumerator.Position position) {
        StreamSettings settings = new StreamSettings("latest-full", null, "fail", 1000, true, true);
        return new StreamEnumerator(context(), SCAN, settings, position);
    }

    /** A stream whose first snapshot is planned. */
    private StreamEnumerator started() throws Exception {
        StreamEnumerator enumerator = stream(null);
        enumerator.start();
        enumerator.handleSourceEvent(0, new StreamReader.GaveBack(new ArrayList<>()));
        plans.get(0).accept(json(FIRST), null);
        return enumerator;
    }

    private void overlappingPolls() throws Exception {
        StreamEnumerator enumerator = started();
        plans.get(1).accept(json(CHANGES), null);
        plans.get(1).accept(json(CHANGES), null); // asked for before the first one was answered
        StreamEnumerator.Position position = enumerator.snapshotState(1);
        expect(2L, position.snapshot());
        expect(List.of("split-0", "split-1", "split-2"), ids(position.waiting()));
    }

    private void changesWait() throws Exception {
        StreamEnumerator enumerator = started();
        plans.get(1).accept(json(CHANGES), null);
        for (int times = 0; times < 3; times++) {
            enumerator.handleSplitRequest(0, "here");
        }
        expect(List.of("split-0", "split-1"), assigned);
        enumerator.snapshotState(1);
        enumerator.handleSourceEvent(0, new StreamReader.Finished(new ArrayList<>(List.of("split-0", "split-1"))));
        enumerator.notifyCheckpointComplete(1); // it began before all rows had been emitted
        expect(List.of("split-0", "split-1"), assigned);
        enumerator.snapshotState(2);
        expect(List.of("split-0", "split-1"), assigned);
        enumerator.notifyCheckpointComplete(2);
        expect(List.of("split-0", "split-1", "split-2"), assigned);
    }

    private static FermionSplit split(int number) {
        return new FermionSplit("split-" + number, number, "{}", 0, new FermionSplit.Place(0, 0, 1));
    }

    private static List<FermionSplit> splits(int... numbers) {
        return new ArrayList<>(IntStream.of(numbers).mapToObj(SourceClaims::split).toList());
    }

    private static List<String> ids(Collection<FermionSplit> splits) {
        return splits.stream().map(FermionSplit::splitId).toList();
    }

    /** All splits are of reader 0, but before the restore another one had the first two. */
    private void orderAfterRestore() {
        readers = 2;
        StreamEnumerator enumerator = stream(new StreamEnumerator.Position(3, 4, 0, 0, "bucket", splits(3, 2)));
        enumerator.start();
        enumerator.handleSourceEvent(0, new StreamReader.GaveBack(new ArrayList<>()));
        enumerator.handleSplitRequest(0, "here");
        expect(List.of(), assigned);
        enumerator.handleSourceEvent(1, new StreamReader.GaveBack(new ArrayList<>(splits(1, 0))));
        expect(List.of("split-0", "split-1", "split-2", "split-3"), assigned);
    }

    private void orderOfSplitsGivenBack() {
        SplitEnumerator<FermionSplit, ScanEnumerator.Waiting> enumerator =
                new ScanEnumerator(context(), SCAN, new ScanEnumerator.Waiting(splits(2, 3)));
        enumerator.start();
        enumerator.addSplitsBack(splits(1, 0), 0);
        for (int times = 0; times < 4; times++) {
            enumerator.handleSplitRequest(0, "here");
        }
        expect(List.of("split-0", "split-1", "split-2", "split-3"), assigned);
    }

    private void orderWithinReader() throws Exception {
        try (BatchRecords.Memory memory = new BatchRecords.Memory()) {
            SplitFetcher fetcher = new SplitFetcher(SCAN, memory);
            fetcher.handleSplitsChanges(new SplitsAddition<>(splits(2, 0, 1)));
            Field waiting = SplitFetcher.class.getDeclaredField("splits");
            waiting.setAccessible(true);
            @SuppressWarnings("unchecked")
            Collection<FermionSplit> found = (Collection<FermionSplit>) waiting.get(fetcher);
            expect(List.of("split-0", "split-1", "split-2"), ids(found));
        }
    }

    /** The next batch is loaded, and the fetcher woken up, while rows of the first one are emitted. */
    private void batchThatIsEmitted() throws Exception {
        try (BatchRecords.Memory own = new BatchRecords.Memory();
                IntVector vector = new IntVector("n", own.allocator)) {
            VectorSchemaRoot root = VectorSchemaRoot.of(vector);
            fill(root, vector, 1);
            BatchRecords first = BatchRecords.of("split-0", root, 1, own);
            expect("split-0", first.nextSplit());
            expect(1, first.nextRecordFromSplit().getInt(0));
            fill(root, vector, 7);
            new SplitFetcher(SCAN, own).wakeUp();
            BatchRecords second = BatchRecords.of("split-0", root, 1, own);
            expect(2, first.nextRecordFromSplit().getInt(0));
            expect(3, first.nextRecordFromSplit().getInt(0));
            expect(true, first.nextRecordFromSplit() == null);
            first.recycle();
            expect(7, second.nextRecordFromSplit().getInt(0));
            second.recycle();
        }
    }

    private static void fill(VectorSchemaRoot root, IntVector vector, int start) {
        for (int at = 0; at < 3; at++) {
            vector.setSafe(at, start + at);
        }
        root.setRowCount(3);
    }
}
