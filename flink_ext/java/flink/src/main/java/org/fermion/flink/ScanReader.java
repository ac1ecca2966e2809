package org.fermion.flink;

import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.connector.base.source.reader.SingleThreadMultiplexSourceReaderBase;
import org.apache.flink.table.data.RowData;

/** Emits the rows of splits, and asks for the next split when one has ended. */
class ScanReader extends SingleThreadMultiplexSourceReaderBase<RowData, RowData, FermionSplit, ScanReader.Progress> {
    private final BatchRecords.Memory memory;
    private final AtomicReference<SplitFetcher> fetcher;

    ScanReader(SourceReaderContext context, TableSource.Scan scan) {
        this(context, scan, new BatchRecords.Memory(), new AtomicReference<>());
    }

    private ScanReader(SourceReaderContext context, TableSource.Scan scan, BatchRecords.Memory memory,
            AtomicReference<SplitFetcher> fetcher) {
        super(() -> {
            fetcher.set(new SplitFetcher(scan, memory));
            return fetcher.get();
        }, (row, output, progress) -> {
            output.collect(row);
            progress.emitted++;
        }, context.getConfiguration(), context);
        this.memory = memory;
        this.fetcher = fetcher;
    }

    /** A split, and how many of its rows were emitted. */
    static final class Progress {
        final FermionSplit split;
        long emitted;

        Progress(FermionSplit split) {
            this.split = split;
            this.emitted = split.emitted();
        }
    }

    @Override
    public void start() {
        if (getNumberOfCurrentlyAssignedSplits() == 0) {
            context.sendSplitRequest();
        }
    }

    @Override
    protected void onSplitFinished(Map<String, Progress> finished) {
        context.sendSplitRequest();
    }

    @Override
    protected Progress initializedState(FermionSplit split) {
        return new Progress(split);
    }

    @Override
    protected FermionSplit toSplitType(String splitId, Progress progress) {
        return progress.split.after(progress.emitted);
    }

    @Override
    public void close() throws Exception {
        if (fetcher.get() != null) {
            fetcher.get().abort();
        }
        super.close();
        memory.close();
    }
}
