package org.fermion.flink;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Comparator;
import java.util.Deque;
import java.util.Set;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.flink.connector.base.source.reader.RecordsWithSplitIds;
import org.apache.flink.connector.base.source.reader.splitreader.SplitReader;
import org.apache.flink.connector.base.source.reader.splitreader.SplitsChange;
import org.apache.flink.table.data.RowData;
import org.fermion.worker.PythonWorker;

/** Reads one split after the other with a worker of its own. */
final class SplitFetcher implements SplitReader<RowData, FermionSplit> {
    private final TableSource.Scan scan;
    private final BatchRecords.Memory memory;
    private final Deque<FermionSplit> splits = new ArrayDeque<>();
    private volatile PythonWorker worker;
    private volatile boolean isAborted;
    private ArrowStreamReader stream;

    SplitFetcher(TableSource.Scan scan, BatchRecords.Memory memory) {
        this.scan = scan;
        this.memory = memory;
    }

    @Override
    public RecordsWithSplitIds<RowData> fetch() throws IOException {
        FermionSplit split = splits.peek();
        if (split == null) {
            return BatchRecords.none(Set.of());
        }
        if (stream == null) {
            open(split);
        }
        boolean isLoaded;
        try {
            isLoaded = stream.loadNextBatch();
        } catch (IOException | RuntimeException error) {
            throw worker.ended(error instanceof IOException cause ? cause : new IOException(error));
        }
        if (isLoaded) {
            return BatchRecords.of(split.splitId(), stream.getVectorSchemaRoot(), scan.columns(), memory);
        }
        closeStream();
        splits.poll();
        return BatchRecords.none(Set.of(split.splitId()));
    }

    private void open(FermionSplit split) throws IOException {
        if (worker == null) {
            worker = scan.table().command().start();
            if (isAborted) {
                worker.close();
            }
        }
        ObjectNode request = scan.request("read");
        request.setAll(TableAccess.jsonObject(split.request()));
        request.put("skip", split.emitted());
        JsonNode answer = worker.call(request);
        if (!answer.get("rows").asBoolean()) {
            throw new IOException("expected rows of split " + split.splitId() + ", found " + answer);
        }
        stream = worker.rows(memory.allocator);
    }

    private void closeStream() throws IOException {
        if (stream != null) {
            stream.close(false);
            stream = null;
        }
    }

    @Override
    public void handleSplitsChanges(SplitsChange<FermionSplit> change) {
        // A checkpoint forgets the order of splits.
        change.splits().stream().sorted(Comparator.comparingLong(FermionSplit::sequence)).forEach(splits::add);
    }

    /** Nothing to do: a batch comes soon, or the worker is gone. */
    @Override
    public void wakeUp() {}

    /** End the worker from another thread, so that nothing waits for it. */
    void abort() {
        isAborted = true;
        if (worker != null) {
            worker.close();
        }
    }

    @Override
    public void close() throws IOException {
        if (worker != null) {
            worker.close();
        }
        closeStream();
    }
}
