package org.fermion.paimon;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.paimon.data.Blob;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.columnar.ColumnarRow;
import org.apache.paimon.format.FormatReaderFactory;
import org.apache.paimon.fs.Path;
import org.apache.paimon.reader.FileRecordIterator;
import org.apache.paimon.reader.FileRecordReader;
import org.apache.paimon.types.DataTypeRoot;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.RoaringBitmap32;
import org.fermion.arrow.ArrowColumn;
import org.fermion.worker.PythonWorker;

/** The rows of one file: those that a filter may select, among those that are selected by position. */
final class FermionReader implements FileRecordReader<InternalRow> {
    private final WorkerPool workers;
    private final PythonWorker worker;
    private final Path path;
    private final RowType type;
    private final boolean hasBlobs;
    private final BufferAllocator memory = new RootAllocator();
    private final ArrowStreamReader stream;
    private final Set<Batch> lent = new HashSet<>();
    private boolean isAtEnd;
    private boolean isClosed;

    FermionReader(WorkerPool workers, FormatReaderFactory.Context context, RowType type, JsonNode filter)
            throws IOException {
        this.workers = workers;
        this.path = context.filePath();
        this.type = type;
        hasBlobs = type.getFieldTypes().stream().anyMatch(each -> each.getTypeRoot() == DataTypeRoot.BLOB);
        java.nio.file.Path copy = isLocal(path) ? null : localCopy(context);
        PythonWorker taken = null;
        try {
            taken = workers.take();
            ObjectNode request = PythonWorker.request("read");
            request.put("path", copy == null ? path.toUri().getPath() : copy.toString());
            ArrayNode columns = request.putArray("columns");
            type.getFieldNames().forEach(columns::add);
            if (filter != null) {
                request.set("filter", filter);
            }
            if (context.selection() != null) {
                addRanges(request.putArray("selection"), context.selection());
            }
            taken.call(request);
        } catch (IOException | RuntimeException error) {
            if (taken != null) {
                taken.close();
            }
            memory.close();
            throw error;
        } finally {
            if (copy != null) {
                Files.deleteIfExists(copy); // the worker has it open
            }
        }
        worker = taken;
        stream = worker.rows(memory);
    }

    private static boolean isLocal(Path path) {
        String scheme = path.toUri().getScheme();
        return scheme == null || scheme.equals("file");
    }

    private static java.nio.file.Path localCopy(FormatReaderFactory.Context context) throws IOException {
        java.nio.file.Path file = Files.createTempFile("paimon-", ".fermion");
        try (var in = context.fileIO().newInputStream(context.filePath())) {
            Files.copy(in, file, StandardCopyOption.REPLACE_EXISTING);
        } catch (IOException | RuntimeException error) {
            Files.deleteIfExists(file);
            throw error;
        }
        return file;
    }

    private static void addRanges(ArrayNode ranges, RoaringBitmap32 rows) {
        long start = -1;
        long stop = -1;
        for (int row : (Iterable<Integer>) rows::iterator) {
            if (row != stop) {
                if (start >= 0) {
                    ranges.addArray().add(start).add(stop);
                }
                start = row;
            }
            stop = row + 1L;
        }
        if (start >= 0) {
            ranges.addArray().add(start).add(stop);
        }
    }

    @Override
    public FileRecordIterator<InternalRow> readBatch() throws IOException {
        try {
            if (isAtEnd || !stream.loadNextBatch()) {
                isAtEnd = true;
                return null;
            }
        } catch (IOException error) {
            throw worker.ended(error);
        }
        Batch batch = new Batch(stream.getVectorSchemaRoot());
        lent.add(batch);
        return batch;
    }

    @Override
    public void close() throws IOException {
        if (isClosed) {
            return; // somebody else may have the worker by now
        }
        isClosed = true;
        List.copyOf(lent).forEach(Batch::releaseBatch);
        stream.close(false);
        memory.close();
        if (isAtEnd) {
            workers.giveBack(worker);
        } else {
            worker.close(); // it is still sending
        }
    }

    /** Rows of one batch, with their positions in the file. */
    private final class Batch implements FileRecordIterator<InternalRow> {
        private final List<FieldVector> vectors;
        private final ColumnarRow row;
        private final BigIntVector positions;
        private int next;

        Batch(VectorSchemaRoot root) {
            vectors = ArrowColumn.taken(root, memory);
            row = new ColumnarRow(PaimonColumn.of(vectors, type.getFields(), true));
            positions = (BigIntVector) vectors.get(vectors.size() - 1);
        }

        @Override
        public InternalRow next() {
            if (next >= positions.getValueCount()) {
                return null;
            }
            row.setRowId(next++);
            return hasBlobs ? withBlobs() : row;
        }

        /** A copy: Paimon's row would take BLOBs for descriptors of other files, but here they are data. */
        private InternalRow withBlobs() {
            GenericRow copy = new GenericRow(type.getFieldCount());
            for (int at = 0; at < type.getFieldCount(); at++) {
                boolean isBlob = type.getTypeAt(at).getTypeRoot() == DataTypeRoot.BLOB && !row.isNullAt(at);
                copy.setField(at, isBlob
                        ? Blob.fromData(row.getBinary(at))
                        : InternalRow.createFieldGetter(type.getTypeAt(at), at).getFieldOrNull(row));
            }
            return copy;
        }

        @Override
        public long returnedPosition() {
            return positions.get(next - 1);
        }

        @Override
        public Path filePath() {
            return path;
        }

        @Override
        public void releaseBatch() {
            lent.remove(this);
            vectors.forEach(FieldVector::close);
        }
    }
}
