package org.fermion.flink;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.table.data.RowData;

/** The rows of a snapshot, and then its changes. */
final class StreamSource extends TableSource<StreamEnumerator.Position> {
    private static final long serialVersionUID = 1L;

    private final StreamSettings settings;

    StreamSource(Scan scan, StreamSettings settings, TypeInformation<RowData> type) {
        super(scan, type);
        this.settings = settings;
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.CONTINUOUS_UNBOUNDED;
    }

    @Override
    public SourceReader<RowData, FermionSplit> createReader(SourceReaderContext context) {
        return new StreamReader(context, scan);
    }

    @Override
    SplitEnumerator<FermionSplit, StreamEnumerator.Position> enumerator(
            SplitEnumeratorContext<FermionSplit> context, StreamEnumerator.Position position) {
        return new StreamEnumerator(context, scan, settings, position);
    }

    @Override
    public SimpleVersionedSerializer<StreamEnumerator.Position> getEnumeratorCheckpointSerializer() {
        return new State<>(StreamEnumerator::write, StreamEnumerator::read);
    }
}
