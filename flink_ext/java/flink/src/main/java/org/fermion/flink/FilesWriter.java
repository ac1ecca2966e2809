package org.fermion.flink;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.Collection;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.TinyIntVector;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.flink.api.connector.sink2.CommittingSinkWriter;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.fermion.arrow.ArrowRows;
import org.fermion.worker.PythonWorker;

/** Sends rows to a worker in batches; at a checkpoint it says which files hold them. */
final class FilesWriter implements CommittingSinkWriter<RowData, Committable> {
    private static final RootAllocator ROOT = new RootAllocator();
    private static final int BATCH_ROWS = 16_384;

    private final String user;
    private final boolean isOverwrite;
    private final PythonWorker worker;
    private final BufferAllocator memory = ROOT.newChildAllocator("fermion-sink", 0, Long.MAX_VALUE);
    private final ArrowRows<LogicalType> batch;
    private final TinyIntVector kinds;
    private boolean isUnanswered;

    FilesWriter(TableAccess table, RowType rows, boolean hasKinds, String user, ObjectNode overwrite)
            throws IOException {
        this.user = user;
        isOverwrite = overwrite != null;
        ObjectNode request = table.request("open_sink");
        ArrayNode columns = TableAccess.columns(rows);
        request.set("columns", columns);
        if (hasKinds) {
            request.put("kinds", newName(rows));
        }
        if (overwrite != null) {
            request.set("overwrite", overwrite);
        }
        worker = table.command().start();
        try {
            worker.call(request);
            ArrowStreamReader stream = worker.rows(memory);
            Schema schema = stream.getVectorSchemaRoot().getSchema();
            while (stream.loadNextBatch()) {
                throw new IOException("expected a schema, found rows");
            }
            stream.close(false);
            batch = new ArrowRows<>(schema, rows, new FlinkRows(), memory);
        } catch (IOException | RuntimeException error) {
            worker.close();
            memory.close();
            throw error;
        }
        kinds = hasKinds ? (TinyIntVector) batch.batch().getVector(rows.getFieldCount()) : null;
    }

    /** A name that no column has. */
    private static String newName(RowType rows) {
        String name = "_row_kind";
        while (rows.getFieldNames().contains(name)) {
            name += "_";
        }
        return name;
    }

    @Override
    public void write(RowData row, Context context) throws IOException {
        if (kinds != null) {
            kinds.setSafe(batch.rows(), row.getRowKind().toByteValue());
        }
        batch.add(row);
        if (batch.rows() == BATCH_ROWS) {
            send();
        }
    }

    /** Send the batch. The answer is waited for when the next one is ready, so that both sides work. */
    private void send() throws IOException {
        if (batch.rows() > 0) {
            await();
            worker.send(PythonWorker.request("write"), batch.batch());
            isUnanswered = true;
            batch.clear();
        }
    }

    private void await() throws IOException {
        if (isUnanswered) {
            isUnanswered = false;
            worker.answer();
        }
    }

    @Override
    public void flush(boolean endOfInput) throws IOException {
        send();
        await();
    }

    @Override
    public Collection<Committable> prepareCommit() throws IOException {
        flush(false);
        JsonNode messages = worker.call(PythonWorker.request("prepare")).get("messages");
        // An overwrite is a change without rows, too.
        return messages.isEmpty() && !isOverwrite ? List.of() : List.of(new Committable(user, -1, messages.toString()));
    }

    @Override
    public void close() {
        worker.close();
        batch.close();
        memory.close();
    }
}
