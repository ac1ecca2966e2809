package org.fermion.flink;

import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.TinyIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.flink.connector.base.source.reader.RecordsWithSplitIds;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.columnar.ColumnarRowData;
import org.apache.flink.table.data.columnar.vector.VectorizedColumnBatch;
import org.apache.flink.types.RowKind;
import org.fermion.arrow.ArrowColumn;

/** The rows of one Arrow batch of a split, or word that splits have ended. */
final class BatchRecords implements RecordsWithSplitIds<RowData> {
    private final Set<String> finished;
    private final Memory memory;
    private final List<FieldVector> vectors;
    private final TinyIntVector kinds;
    private final ColumnarRowData row;
    private final int rows;
    private String split;
    private int at;

    private BatchRecords(String split, Set<String> finished, Memory memory, List<FieldVector> vectors, int columns,
            int rows) {
        this.split = split;
        this.finished = finished;
        this.memory = memory;
        this.vectors = vectors;
        this.rows = rows;
        kinds = vectors.size() > columns ? (TinyIntVector) vectors.get(columns) : null;
        row = new ColumnarRowData(new VectorizedColumnBatch(FlinkColumn.of(vectors.subList(0, columns))));
    }

    /** No rows; splits that have ended, perhaps none. */
    static BatchRecords none(Set<String> finished) {
        return new BatchRecords(null, finished, null, List.of(), 0, 0);
    }

    /**
     * The rows of a batch, whose vectors are taken: the next batch may be loaded while these are emitted.
     *
     * @param columns of the rows; one more is their kinds, as Flink numbers them
     */
    static BatchRecords of(String split, VectorSchemaRoot batch, int columns, Memory memory) {
        int rows = batch.getRowCount();
        List<FieldVector> vectors = ArrowColumn.taken(batch, memory.allocator);
        BatchRecords records = new BatchRecords(split, Set.of(), memory, vectors, columns, rows);
        memory.lent.add(records);
        return records;
    }

    @Override
    public String nextSplit() {
        String next = split;
        split = null;
        return next;
    }

    @Override
    public RowData nextRecordFromSplit() {
        if (at >= rows) {
            return null;
        }
        row.setRowId(at);
        if (kinds != null) {
            row.setRowKind(RowKind.fromByteValue(kinds.get(at)));
        }
        at++;
        return row;
    }

    @Override
    public Set<String> finishedSplits() {
        return finished;
    }

    @Override
    public void recycle() {
        if (memory != null && memory.lent.remove(this)) {
            vectors.forEach(FieldVector::close);
        }
    }

    /** The memory of one reader's batches: those that were not emitted end with it. */
    static final class Memory implements AutoCloseable {
        private static final RootAllocator ROOT = new RootAllocator();
        final BufferAllocator allocator = ROOT.newChildAllocator("fermion-source", 0, Long.MAX_VALUE);
        private final Set<BatchRecords> lent = ConcurrentHashMap.newKeySet();

        @Override
        public void close() {
            lent.forEach(BatchRecords::recycle);
            allocator.close();
        }
    }
}
