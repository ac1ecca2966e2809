package org.fermion.paimon;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.format.FormatWriter;
import org.apache.paimon.fs.PositionOutputStream;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.RowType;
import org.fermion.arrow.ArrowRows;
import org.fermion.worker.PythonWorker;

/**
 * Writes one file: rows go to a worker in batches, which writes a local file; its bytes go to Paimon's stream.
 *
 * <p>What fails on the way fails the file: nothing of it gets to the stream.
 */
final class FermionWriter implements FormatWriter {
    private static final int ROWS_MAX = 8192;
    private static final int ROWS_CHECKED = 256;
    private static final long BYTES_MAX = 32L << 20;

    private final WorkerPool workers;
    private final PythonWorker worker;
    private final PositionOutputStream out;
    private final Path file;
    private final BufferAllocator memory = new RootAllocator();
    private final ArrowRows<DataType> rows;
    private long bytes;
    private boolean isSound = true;
    private boolean isClosed;
    private JsonNode statistics;

    FermionWriter(WorkerPool workers, PositionOutputStream out, RowType type, String profile) throws IOException {
        this.workers = workers;
        this.out = out;
        rows = new ArrowRows<>(PaimonRows.schema(type), type, new PaimonRows(), memory);
        file = Files.createTempFile("paimon-", ".fermion");
        PythonWorker taken = null;
        try {
            taken = workers.take();
            ObjectNode request = PythonWorker.request("open").put("path", file.toString());
            if (profile != null) {
                request.put("profile", profile);
            }
            taken.call(request);
        } catch (IOException | RuntimeException error) {
            release(taken, false);
            throw error;
        }
        worker = taken;
    }

    @Override
    public void addElement(InternalRow row) throws IOException {
        rows.add(row);
        if (rows.rows() == ROWS_MAX || rows.rows() % ROWS_CHECKED == 0 && buffered() > BYTES_MAX) {
            send();
        }
    }

    private long buffered() {
        return rows.batch().getFieldVectors().stream().mapToLong(FieldVector::getBufferSize).sum();
    }

    private void send() throws IOException {
        isSound = false;
        worker.send(PythonWorker.request("batch"), rows.batch());
        bytes = worker.answer().get("bytes").asLong();
        isSound = true;
        rows.clear();
    }

    @Override
    public boolean reachTargetSize(boolean isSuggested, long target) {
        return isSuggested && bytes + rows.rows() > 0 && bytes >= target;
    }

    @Override
    public Object writerMetadata() {
        return statistics;
    }

    @Override
    public void close() throws IOException {
        if (isClosed) {
            return; // somebody else may have the worker by now
        }
        isClosed = true;
        boolean isDone = false;
        try {
            if (isSound) {
                send(); // also without rows: the worker learns the schema
                isSound = false;
                statistics = worker.call(PythonWorker.request("finish")).get("statistics");
                Files.copy(file, out);
                isDone = true;
            }
        } finally {
            release(worker, isDone);
        }
    }

    private void release(PythonWorker used, boolean isDone) throws IOException {
        rows.close();
        memory.close();
        if (used != null && isDone) {
            workers.giveBack(used);
        } else if (used != null) {
            used.close();
        }
        Files.deleteIfExists(file);
    }
}
