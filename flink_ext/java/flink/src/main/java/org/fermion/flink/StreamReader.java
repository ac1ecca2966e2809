package org.fermion.flink;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.connector.source.SourceEvent;
import org.apache.flink.api.connector.source.SourceReaderContext;

/**
 * Emits the rows of splits that the enumerator hands out in order.
 *
 * <p>After a restore a reader may have the splits of another one, and in any order. So it gives them back before it
 * reads: the enumerator hands them out again.
 */
final class StreamReader extends ScanReader {
    private final List<FermionSplit> restored = new ArrayList<>();
    private boolean isStarted;

    StreamReader(SourceReaderContext context, TableSource.Scan scan) {
        super(context, scan);
    }

    /** What a reader had when it began; it has nothing any more once the answer has come. */
    record GaveBack(ArrayList<FermionSplit> splits) implements SourceEvent {
        private static final long serialVersionUID = 1L;
    }

    /** The answer: the splits are the enumerator's, also in checkpoints. */
    record Taken() implements SourceEvent {
        private static final long serialVersionUID = 1L;
    }

    /** All rows of some splits were emitted. */
    record Finished(ArrayList<String> splits) implements SourceEvent {
        private static final long serialVersionUID = 1L;
    }

    @Override
    public void addSplits(List<FermionSplit> splits) {
        if (isStarted) {
            super.addSplits(splits);
        } else {
            restored.addAll(splits);
        }
    }

    @Override
    public void start() {
        isStarted = true;
        context.sendSourceEventToCoordinator(new GaveBack(new ArrayList<>(restored)));
        context.sendSplitRequest();
    }

    @Override
    public List<FermionSplit> snapshotState(long checkpoint) {
        List<FermionSplit> splits = new ArrayList<>(super.snapshotState(checkpoint));
        splits.addAll(restored);
        return splits;
    }

    @Override
    public void handleSourceEvents(SourceEvent event) {
        if (event instanceof Taken) {
            restored.clear();
        } else {
            super.handleSourceEvents(event);
        }
    }

    @Override
    protected void onSplitFinished(Map<String, Progress> finished) {
        context.sendSourceEventToCoordinator(new Finished(new ArrayList<>(finished.keySet())));
        context.sendSplitRequest();
    }
}
